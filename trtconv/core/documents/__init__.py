"""Every JSON document that trtconv writes: each is one class, which reads it too."""
