"""Files put into grading boxes; README.md says what they may use."""
