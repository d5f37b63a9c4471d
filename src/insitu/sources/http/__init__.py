"""Source for web servers: ranges over HTTP and HTTPS."""
