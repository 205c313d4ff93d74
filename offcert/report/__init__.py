"""Tables and plots.

Its size: pages and pictures are written without a plotting library or a server, so that a report
is one file that opens anywhere; text, SVG and JSON say the same.
"""
