// SPDX-License-Identifier: MIT
// Stands in for ROCm's copy of zlib, which numba-hip's LLVM is linked with and which no package brings: it compresses
// nothing, and says so to who asks. LLVM asks for debugging sections alone, which kernels here have not.
#include <stddef.h>

enum { MEMORY_ERROR = -4 };

unsigned long compressBound(unsigned long size) { return size; }
int compress2(unsigned char *to, unsigned long *room, const unsigned char *from, unsigned long size, int level) {
  (void)to, (void)room, (void)from, (void)size, (void)level;
  return MEMORY_ERROR;
}
int uncompress(unsigned char *to, unsigned long *room, const unsigned char *from, unsigned long size) {
  (void)to, (void)room, (void)from, (void)size;
  return MEMORY_ERROR;
}
unsigned long crc32(unsigned long sum, const unsigned char *data, unsigned size) {
  if (data == NULL) return 0;
  sum = ~sum & 0xffffffffu;
  for (unsigned i = 0; i < size; ++i) {
    sum ^= data[i];
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ (sum & 1 ? 0xedb88320u : 0);
  }
  return ~sum & 0xffffffffu;
}
