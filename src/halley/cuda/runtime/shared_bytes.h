// Dynamic shared memory beyond the 48 KiB that every kernel may take.
#pragma once

namespace halley {

/// Lets launches of `kernel` on the current device take this much dynamic shared memory, from now
/// on. `name` is the kernel's in the error's text. Any thread may call it: none lowers what another
/// one has raised and is about to use. Throws DeviceError.
void raise_shared_bytes(const void* kernel, int num_bytes, const char* name);

template <typename... Args>
void raise_shared_bytes(void (*kernel)(Args...), int num_bytes, const char* name) {
  raise_shared_bytes(reinterpret_cast<const void*>(kernel), num_bytes, name);
}

}  // namespace halley
