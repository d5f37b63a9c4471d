"""DMR++: OPeNDAP's side files, which say where the chunks of a file lie."""

from insitu.formats.dmrpp.scan import is_dmrpp, scan_dmrpp

__all__ = ["is_dmrpp", "scan_dmrpp"]
