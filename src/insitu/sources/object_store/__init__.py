"""Source for objects in S3, Google Cloud Storage and Azure."""
