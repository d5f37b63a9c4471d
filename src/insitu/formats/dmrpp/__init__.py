"""DMR++: OPeNDAP's side files, which say where the chunks of a file lie."""
