"""The adapter to SGLang's first speculative worker generation: 0.5.12.post1 and 0.5.13.post1."""
