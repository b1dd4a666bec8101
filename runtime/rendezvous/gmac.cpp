#include "runtime/rendezvous/gmac.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <openssl/evp.h>

#include "runtime/rendezvous/crypto_free.h"

namespace hvd {
struct Gmac::State {
  std::unique_ptr<OSSL_LIB_CTX, CryptoFree> library;  // our own, for the reasons of crypto.h
  std::unique_ptr<EVP_CIPHER, CryptoFree> cipher;
  std::unique_ptr<EVP_CIPHER_CTX, CryptoFree> context;
  bool is_well = true;
};

Gmac::Gmac(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gmac::Gmac(Gmac&&) noexcept = default;
Gmac& Gmac::operator=(Gmac&&) noexcept = default;
Gmac::~Gmac() = default;

Result<Gmac> Gmac::create(const GmacKey& key) {
  auto state = std::make_unique<State>();
  state->library.reset(OSSL_LIB_CTX_new());
  state->cipher.reset(EVP_CIPHER_fetch(state->library.get(), "AES-256-GCM", nullptr));
  state->context.reset(EVP_CIPHER_CTX_new());
  if (!state->library || !state->cipher || !state->context ||
      EVP_EncryptInit_ex2(state->context.get(), state->cipher.get(), key.data(), nullptr, nullptr) != 1) {
    return Error(Code::kSystem, "libcrypto cannot prepare AES-256-GMAC");
  }
  return Gmac(std::move(state));
}

void Gmac::begin(std::uint64_t nonce) {
  std::array<std::uint8_t, 12> bytes{};
  std::memcpy(bytes.data(), &nonce, sizeof nonce);
  state_->is_well = EVP_EncryptInit_ex2(state_->context.get(), nullptr, nullptr, bytes.data(), nullptr) == 1;
}

// What GCM authenticates without encrypting it is all there is.
void Gmac::add(Bytes bytes) {
  constexpr std::size_t kMost = 1U << 30U;
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), kMost));
    bytes = bytes.subspan(part.size());
    int size = 0;
    state_->is_well = state_->is_well && EVP_EncryptUpdate(state_->context.get(), nullptr, &size, part.data(),
                                                           static_cast<int>(part.size())) == 1;
  }
}

GmacProof Gmac::finish() {
  GmacProof proof{};
  std::array<std::uint8_t, 16> rest{};
  int size = 0;
  if (!state_->is_well || EVP_EncryptFinal_ex(state_->context.get(), rest.data(), &size) != 1 ||
      EVP_CIPHER_CTX_ctrl(state_->context.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(proof.size()), proof.data()) !=
          1) {
    return {};
  }
  return proof;
}

}  // namespace hvd
