"""Sources and sinks outside of the program: files, standard input and output."""
