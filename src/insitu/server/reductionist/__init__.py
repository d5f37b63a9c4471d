"""The Reductionist protocol, version 2: `/v2/{count,max,min,select,sum}`, one chunk a request, so that PyActiveStorage works unmodified."""
