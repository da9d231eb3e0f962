"""What a GPU can do, measured in the run that is compared with it: copies of like size, and the vendor's matrix products."""
import math

from tenor import _bench_timers

_LARGEST = 1 << 30  # bytes of a copied array


class CudaLimits:
    """As tenor.device_limits() of the CPU: `bfloat16_flops`, `float32_flops`, and copy rates by size, each measured when asked for."""

    def __init__(self, torch, device):
        self._torch, self._device, self._copies, self._flops = torch, device, {}, {}

    @property
    def copy_bytes(self):
        """Bytes a second, read and written, of a large copy."""
        return self.copy_bytes_of(2 * _LARGEST)

    def copy_bytes_of(self, moved):
        """Of a copy that moves about as many bytes: a short one spends a share of its time on starting."""
        size = min(1 << max(10, math.ceil(math.log2(max(moved, 2) / 2))), _LARGEST)
        if size not in self._copies:
            x = self._torch.ones(size, dtype=self._torch.uint8, device=self._device)
            y = self._torch.empty_like(x)
            self._copies[size] = 2 * size / self._seconds(lambda: y.copy_(x))
        return self._copies[size]

    @property
    def bfloat16_flops(self):
        return self._matmul(self._torch.bfloat16)

    @property
    def float32_flops(self):
        return self._matmul(self._torch.float32)

    def _matmul(self, dtype):
        """The best of two sizes: the larger one may be throttled."""
        if dtype not in self._flops:
            rates = []
            for n in (4096, 8192):
                x, y = (self._torch.randn(n, n, device=self._device).to(dtype) for _ in range(2))
                rates.append(2 * n**3 / self._seconds(lambda: self._torch.matmul(x, y)))
            self._flops[dtype] = max(rates)
        return self._flops[dtype]

    def _seconds(self, fn):
        return _bench_timers.compare([fn], 1, 0.02, self._device)[0]
