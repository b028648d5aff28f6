"""Files put into grading boxes; nothing here may need more than Python 3.9 and its standard library."""
