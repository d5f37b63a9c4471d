"""The Reductionist protocol, version 2: routes `/v2/{count,max,min,select,sum}`, one chunk per
request.

PyActiveStorage, a client of Reductionist, works with them unmodified.
"""
