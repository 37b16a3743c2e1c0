"""Five faults of the museum, A to E. Which they are is the exercise: look at what they do, not at this file.

>>> with RIDDLES["A"].planted() as function:  # inside, this process has the fault
...     pass
"""

from hashlib import sha256

from extra.museum.exhibits import EXHIBITS

_DIGESTS = {"A": "eb6301b9", "B": "d641d662", "C": "5e268854", "D": "f1e55021", "E": "93f32aaa"}
RIDDLES = {
    name: next(exhibit for exhibit in EXHIBITS if sha256(exhibit.title.encode()).hexdigest().startswith(digest))
    for name, digest in _DIGESTS.items()
}
