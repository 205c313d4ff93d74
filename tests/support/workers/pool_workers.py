"""Work that ends in every way; it needs nothing that takes long to load."""

import os
import signal
import time
from pathlib import Path


def square(number: int) -> int:
    """Answer, or die on a negative number."""
    if number < 0:
        os._exit(3)
    return number * number


def interrupt(number: int) -> int:
    """Get the signal that the terminal sends to every process."""
    os.kill(os.getpid(), signal.SIGINT)
    return number


def allocate(amount: int) -> int:
    """Take so many bytes."""
    return len(bytearray(amount))


def chatter(text: str) -> str:
    """Print as compiled code does, which knows nothing of Python's redirections."""
    os.write(1, text.encode())
    return text


def say_and_sleep(path: str) -> None:
    """Say which process this is, and never answer."""
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def quick_or_asleep(item: str) -> str:
    """Answer at once or never."""
    if item != "quick":
        say_and_sleep(item)
    return item
