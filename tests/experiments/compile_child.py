"""Compiles two of ResNet-20's kernels for an H100, which need not be here; prints their names.

A process of its own, since the driver is one that only knows for which GPU code is made.
"""

import json
import os
import sys

os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_CACHE_DIR"] = sys.argv[1]

import torch
from experiments.resnet20 import conv, forward
from experiments.resnet20.launch import compiled_together
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Absent:
    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


driver.set_active(Absent())
pooled = torch.zeros(2, 64)
with compiled_together():
    for side in (4, 8):
        conv.pool(torch.ones(2, side, side, 64, dtype=torch.bfloat16), pooled)
kernels, *_ = forward.pool_kernel.device_caches[0]
names = [kernel.metadata.name for kernel in kernels.values() if kernel.asm["cubin"]]
print(json.dumps({"compiled": names, "launched": bool(pooled.any())}))
