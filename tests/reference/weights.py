"""Weights of models by the likelihood of the labels, drawn towards equal ones: as defined."""

import itertools
import math


def surprise(weights, shifts, scores, classes, row_weight, pull):
    """What is to be least; ``scores[m][i]`` are the logarithms of each class's share."""
    total, models = 0.0, len(weights)
    for i, label in enumerate(classes):
        mean = [
            sum(weights[m] * scores[m][i][c] for m in range(models)) + shifts[c]
            for c in range(len(shifts))
        ]
        total += row_weight[i] * (math.log(sum(math.exp(z) for z in mean)) - mean[label])
    return total + pull * models * sum((a - 1 / models) ** 2 for a in weights)


def likeliest(scores, classes, row_weight, pull, rounds=60):
    """The weights, by going down along one coordinate or the other, in ever smaller steps."""
    models, outputs = len(scores), len(scores[0][0])
    at, step = [1 / models] * models + [0.0] * outputs, 0.25

    def value(x):
        return surprise(x[:models], x[models:], scores, classes, row_weight, pull)

    least = value(at)
    for _ in range(rounds):
        moved = False
        for k, sign in itertools.product(range(len(at)), (-1, 1)):
            other = list(at)
            other[k] += sign * step
            if k < models:
                other[k] = max(0.0, other[k])
            if (found := value(other)) < least:
                at, least, moved = other, found, True
        if not moved:
            step /= 2
    return [a / sum(at[:models]) for a in at[:models]]
