"""Steps of a search: each runs one method within its time and hands on what it found."""
