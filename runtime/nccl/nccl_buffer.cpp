#include "runtime/nccl/nccl_buffer.h"

namespace hvd {

Result<NcclBuffer> NcclBuffer::make(std::shared_ptr<NcclComm> comm, std::size_t size_bytes) {
  HVD_TRY_ASSIGN(void* const data, comm->allocate(size_bytes));
  return NcclBuffer(std::move(comm), data, size_bytes);
}

Result<void> NcclBuffer::enroll() {
  HVD_TRY_ASSIGN(registration_, comm_->register_memory(data_, size_bytes_));
  return {};
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
