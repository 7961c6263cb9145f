"""The Yahoo Streaming Benchmark: its events, the engines that count them, and what is measured."""
