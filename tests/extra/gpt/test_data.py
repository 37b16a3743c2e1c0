"""Windows of another text among a text's own."""

import numpy as np

from extra.gpt.data import ReplayedData
from extra.gpt.options import GPTOptions
from gpt.data import prepare


def test_replay_takes_its_share_of_every_batch_from_the_other_text(tmp_path):
    (tmp_path / "text.txt").write_text("".join(chr(97 + (i * i + i // 7) % 26) for i in range(2000)), encoding="utf-8")
    options = GPTOptions.of(text=[str(tmp_path / "text.txt")], block_size=16, replay_share=0.1)
    plain_data = prepare(options)
    data = ReplayedData(**vars(plain_data), replay=np.arange(1000, 1100, dtype=np.uint16))
    plain = [plain_data.batch(step, 12) for step in range(10)]
    counts = []
    for step, (ids, targets) in enumerate(plain):
        parts = data.micro_batches(step, 4, 3)
        mixed, shifted = (np.concatenate([part.numpy() for part in side]) for side in zip(*parts, strict=True))
        count = int((mixed >= 1000).all(axis=1).sum())
        np.testing.assert_array_equal(mixed[count:], ids[count:])
        np.testing.assert_array_equal(shifted[count:], targets[count:])
        np.testing.assert_array_equal(mixed[:count] + 1, shifted[:count])
        counts.append(count)
    assert counts == [1, 1, 1, 1, 2, 1, 1, 1, 1, 2]  # 1.2 windows of 12 on average
