"""The algorithm itself: torch only, nothing of SGLang. Shapes are static and nothing waits for the device.

trees → walk → commit is one round; sampling says what the target chooses at each node.
"""
