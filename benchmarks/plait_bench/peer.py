"""The scan in C++: the same loop, compiled with -O3 for the machine at hand, as a yardstick for generated kernels."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

extern "C" int64_t scan(int64_t n, const int64_t* lo, const int64_t* hi, const int32_t* px, const float* py,
                        const int32_t* wx, const float* wy, int64_t* out_probe, int64_t* out_row) {
  int64_t count = 0, begin = lo[0], end = hi[0];
  for (int64_t p = 1; p < n; p++) { begin = std::min(begin, lo[p]); end = std::max(end, hi[p]); }
  for (int64_t panel = begin; panel < end; panel += 8192) {
    int64_t panel_end = std::min(panel + 8192, end);
    for (int64_t g = 0; g < n; g += 8) {
      int64_t after = std::min(g + 8, n), first = lo[g], last = hi[g];
      for (int64_t p = g + 1; p < after; p++) { first = std::min(first, lo[p]); last = std::max(last, hi[p]); }
      first = std::max(first, panel); last = std::min(last, panel_end);
      int32_t x[8]; float y[8];
      for (int k = 0; k < 8; k++) { int64_t q = std::min(g + k, n - 1); x[k] = px[q]; y[k] = py[q]; }
      for (int64_t tile = first; tile < last; tile += 256) {
        int64_t tile_end = std::min(tile + 256, last);
        int32_t hit = 0;  // a bool would leave g++'s loop scalar
        for (int64_t j = tile; j < tile_end; j++) {
          int32_t a = wx[j]; float b = wy[j];
          for (int k = 0; k < 8; k++) hit |= (std::abs(x[k] - a) <= 10) & (std::fabs(y[k] - b) <= 10.0f);
        }
        if (!hit) continue;
        for (int64_t p = g; p < after; p++)
          for (int64_t j = std::max(tile, lo[p]); j < std::min(tile_end, hi[p]); j++)
            if (std::abs(px[p] - wx[j]) <= 10 && std::fabs(py[p] - wy[j]) <= 10.0f) {
              out_probe[count] = p; out_row[count] = j; count++;
            }
      }
    }
  }
  return count;
}
"""

Scan = Callable[[np.ndarray, np.ndarray, list[np.ndarray], list[np.ndarray]], int]


def compiled() -> Scan | None:
    """The peer as a function (lo, hi, probe columns, window columns) -> number of pairs; None without a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "scan.cpp", Path(folder) / "scan.so"
        source.write_text(SOURCE)
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(source)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        scan = ctypes.CDLL(str(library)).scan  # stays mapped when the file is gone
    scan.restype = ctypes.c_int64
    out = np.empty((2, 1 << 20), np.int64)

    def call(lo: np.ndarray, hi: np.ndarray, probe: list[np.ndarray], window: list[np.ndarray]) -> int:
        arrays = [lo, hi, *probe, *window, out[0], out[1]]
        return int(scan(ctypes.c_int64(len(lo)), *(a.ctypes.data_as(ctypes.c_void_p) for a in arrays)))

    return call
