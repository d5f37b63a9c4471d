"""How is an object of S3 read so that no redirect leads astray?

obstore follows whatever redirect a store answers with. Behind a gate (see `gate`) an object at an endpoint that the gate knows by its
web address is therefore read by that address, signed where there are keys: then every hop is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from insitu.model import Source
from insitu.sources.address import Address
from insitu.sources.gate import guards_web

if TYPE_CHECKING:
    from insitu.sources.bucket import Bucket
    from insitu.sources.http import HttpSource

__all__ = ["EXPIRES", "signed_source"]

EXPIRES = timedelta(hours=2)
"""How long a signed address is good for; whoever keeps sources open longer must open them anew."""


def signed_source(
    bucket: Bucket, address: Address, options: Mapping[str, Any], expected: Source | None
) -> HttpSource | None:
    """The object by its web address; None where there is no gate, or the gate knows the bucket by its own name only."""
    endpoint = bucket.endpoint
    if address.kind != "s3" or endpoint is None:
        return None
    url = f"{endpoint.rstrip('/')}/{quote(address.bucket)}/{quote(address.key)}"
    if not guards_web(url):
        return None
    import obstore

    from insitu.sources.certificates import trust_for
    from insitu.sources.http import HttpSource
    from insitu.sources.patience import patience_for

    if not (options.get("anon") or bucket.anonymous):
        store: Any = bucket.store
        url = obstore.sign(store, "GET", address.key, EXPIRES)
    return HttpSource(url, patience=patience_for(options), trust=trust_for(options, aws=True), expected=expected)
