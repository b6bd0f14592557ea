"""A load generator: when requests come, what they ask, who sends them, what came of them.

Open loop unless said otherwise: a request is due at its time whether or not earlier ones came
back, and its latency counts from that time, so a slow server cannot hide its own queue
(coordinated omission: Tene, "How NOT to Measure Latency").
"""
