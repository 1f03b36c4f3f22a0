"""What the language-agent methods share.

``envs`` are worlds to act in, ``skills`` folders of procedures, ``sandbox`` runs what an agent
wrote, ``llm`` talks to language models; each is imported by its own name, so that this one stays
light.
"""
