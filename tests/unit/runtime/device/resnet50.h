// The sizes of ResNet-50's 161 gradients, in elements, in the order of its layers: 25,557,032 in all.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd {

inline std::vector<std::size_t> resnet50_sizes() {
  std::vector<std::size_t> sizes;
  const auto convolution = [&](std::size_t out, std::size_t in, std::size_t kernel) {
    sizes.push_back(out * in * kernel * kernel);
    sizes.push_back(out);  // its normalisation's weight and bias
    sizes.push_back(out);
  };
  struct Stage {
    std::size_t blocks;
    std::size_t width;
  };
  convolution(64, 3, 7);
  std::size_t in = 64;
  for (const Stage& stage : {Stage{3, 64}, Stage{4, 128}, Stage{6, 256}, Stage{3, 512}}) {
    for (std::size_t block = 0; block < stage.blocks; ++block) {
      convolution(stage.width, in, 1);
      convolution(stage.width, stage.width, 3);
      convolution(4 * stage.width, stage.width, 1);
      if (block == 0) {
        convolution(4 * stage.width, in, 1);
      }
      in = 4 * stage.width;
    }
  }
  sizes.push_back(1000 * in);
  sizes.push_back(1000);
  return sizes;
}

}  // namespace hvd
