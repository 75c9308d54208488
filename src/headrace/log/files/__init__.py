"""The file store: one process owns a data folder and alone writes its journal segments and its mark."""
