"""Whichever test first starts the server that processes are forked from, it loads the same."""

import multiprocessing

multiprocessing.get_context("forkserver").set_forkserver_preload(["offcert.campaign.preload"])
