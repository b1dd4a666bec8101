// All device code: one file, since the driver loads one.
#include "runtime/device/adasum.cuh"
#include "runtime/device/move.cuh"
