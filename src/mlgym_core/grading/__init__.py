"""The grading room: frozen submissions, sealed grader and player boxes, and the frames between them."""
