"""Errors of obstore as ours, and which of them are worth another attempt.

obstore has few classes of errors, so that much is told only by the text of the message.
"""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from insitu.errors import AccessError, NotFoundError, SourceError, TimedOutError
from insitu.sources.access_policy import hint_for_user
from insitu.sources.redaction import redact_text

__all__ = ["as_source_error", "is_throttled", "is_transient", "sends_whole_objects"]

_RETRIES = re.compile(r", after \d+ retries, max_retries: \d+, retry_timeout: \S+(?= - )")
"""obstore's count of its own retries: they are switched off, because the retry policy is ours."""
_THROTTLED = re.compile(r"status code: (?:429|503)\b|SlowDown|TooManyRequests|ServerBusy")
_TRANSIENT = re.compile(
    r"status code: (?:408|425|429|5\d\d)\b|SlowDown|ServerBusy"
    r"|HTTP error|error sending request|error decoding response body|body error"
    r"|[Tt]imed ?[Oo]ut|connection (?:reset|closed)|operation interrupted"
    # The store answered, and not what was asked.
    r"|non-partial response|Requested .* got|[Cc]ontent-[Ll]ength|[Cc]ontent-[Rr]ange|message length"
)


def is_throttled(error: Exception) -> bool:
    """Return whether a store says that it gets too many requests.

    Examples
    --------
    >>> is_throttled(OSError("status code: 503 Service Unavailable: <Code>SlowDown</Code>"))
    True
    """
    return _THROTTLED.search(str(error)) is not None


def is_transient(error: Exception) -> bool:
    """Return whether an error may pass.

    Examples
    --------
    >>> is_transient(OSError("status code: 500 Internal Server Error")), is_transient(OSError("status code: 404"))
    (True, False)
    """
    if isinstance(error, FileNotFoundError | PermissionError | PermissionDeniedError | UnauthenticatedError):
        return False
    return _TRANSIENT.search(str(error)) is not None


def sends_whole_objects(error: Exception) -> bool:
    """Return whether a store answered a range with the whole object."""
    return "non-partial" in str(error)


def as_source_error(
    error: Exception, url: str, offset: int | None = None, length: int | None = None, *, anonymous: bool = False
) -> SourceError:
    """Return an error of obstore as one of ours.

    Parameters
    ----------
    error
        obstore's error.
    url, offset, length
        What was requested.
    anonymous
        Whether the request went without credentials because none were found.
    """
    # The first paragraph is for people, the rest is a dump of the library's own structures. The
    # original error is not chained anywhere: its text may hold a signed address.
    text = str(error).partition("\n\nDebug source")[0].strip()
    reason = redact_text(_RETRIES.sub("", _without_xml(text)))
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such object", url=url)
    refused = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
    if refused or re.search(r"status code: 40[13]\b", reason):  # of a listing, obstore does not say it by the class
        without = " (no credentials were found, so the request was anonymous)" if anonymous else ""
        return AccessError(f"the store denies access{without}: {reason}", url=url, hint=hint_for_user(_CREDENTIALS))
    if "timed out" in reason or "TimedOut" in str(error):
        return TimedOutError(reason, url=url, offset=offset, length=length)
    # 169.254.169.254 is where a cloud machine finds its credentials; asking there in vain means
    # that there are none.
    hint = hint_for_user(_CREDENTIALS) if "169.254.169.254" in str(error) or "redential" in reason else None
    if "redirect" in reason:
        hint = hint_for_user('The bucket is in another region: pass storage_options={"region": ...}.')
    return SourceError(f"the store failed: {reason}", url=url, offset=offset, length=length, hint=hint)


def _without_xml(text: str) -> str:
    """Return a message with only the code and the text of an XML answer: the rest may repeat what
    we sent, keys included.

    Examples
    --------
    >>> _without_xml("403 Forbidden: <?xml ?><Error><Code>NoKey</Code><Message>Who?</Message><Id>AK</Id></Error>")
    '403 Forbidden: NoKey: Who?'
    """
    begin, page, rest = text.partition("<?xml")
    if not page:
        return text
    found = [
        match[1].strip() for name in ("Code", "Message") if (match := re.search(f"<{name}>(.*?)</{name}>", rest, re.S))
    ]
    return begin + ": ".join(found)


_CREDENTIALS = (
    'Pass storage_options={"anon": True} for a public bucket, {"key": ..., "secret": ...} or {"profile": ...} for '
    "others, or set them in the environment."
)
