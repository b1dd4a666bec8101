#include "runtime/nccl/nccl_buffer.h"

namespace hvd {

Result<NcclBuffer> NcclBuffer::make(std::shared_ptr<NcclComm> comm, std::size_t size_bytes) {
  HVD_TRY_ASSIGN(void* const data, comm->allocate(size_bytes));
  NcclBuffer made(std::move(comm), data, size_bytes);
  HVD_TRY_ASSIGN(made.registration_, made.comm_->register_memory(data, size_bytes));
  return made;
}

NcclBuffer::~NcclBuffer() {
  if (data_ != nullptr) {
    if (registration_ != nullptr) {
      comm_->deregister(registration_);
    }
    comm_->free_memory(data_);
  }
}

}  // namespace hvd
