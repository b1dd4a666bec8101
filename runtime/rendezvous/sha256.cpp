#include "runtime/rendezvous/sha256.h"

#include <openssl/sha.h>

namespace hvd {

struct Sha256::State {
  SHA256_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  ::SHA256_Init(&state_->context);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(Bytes bytes) {
  ::SHA256_Update(&state_->context, bytes.data(), bytes.size());
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  ::SHA256_Final(digest.data(), &state_->context);
  ::SHA256_Init(&state_->context);
  return digest;
}

Sha256Digest sha256_of(Bytes bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

}  // namespace hvd
