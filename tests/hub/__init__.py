"""A test hub for the real `huggingface_hub` client, and its tests."""
