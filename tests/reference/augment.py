"""Changes of one image, pixel by pixel, with the random numbers given."""

import numpy as np

GREY = np.array([0.299, 0.587, 0.114])


def jitter(image, bright, contrast, color, top):
    """Of an image (3, H, W) with values from 0 to ``top``."""
    x = np.clip(bright * image.astype(float), 0, top)
    mean = np.mean([GREY @ x[:, i, j] for i, j in np.ndindex(x.shape[1:])])
    x = np.clip(mean + contrast * (x - mean), 0, top)
    changed = np.empty_like(x)
    for i, j in np.ndindex(x.shape[1:]):
        grey = GREY @ x[:, i, j]
        changed[:, i, j] = np.clip(grey + color * (x[:, i, j] - grey), 0, top)
    return changed


def mix(images, partners, shares):
    """Each image blended with its partner."""
    images = images.astype(float)
    return np.stack(
        [
            s * images[i] + (1 - s) * images[j]
            for i, (j, s) in enumerate(zip(partners, shares, strict=True))
        ]
    )
