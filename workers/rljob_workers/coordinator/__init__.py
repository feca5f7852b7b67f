"""The coordinator process: a thin shell (sockets, files, store) around `rljob_core.session`."""
