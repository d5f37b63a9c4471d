"""What the routes of the explorer's API answer, one module each; its first line says for which route."""
