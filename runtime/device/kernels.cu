// All device code is compiled as this one file, since the driver loads one.
#include "runtime/device/adasum.cuh"
#include "runtime/device/move.cuh"
