// The words that several searches use. A search includes this file before it defines its `State`, and search.h after it.
#include <stddef.h>
#include <string.h>

typedef signed char byte;

/** The value of a setting. */
#define SET(name) (settings[name].value)

static inline int larger(int a, int b) { return a > b ? a : b; }

/** One tick less, but not less than none. */
static inline void less(byte *ticks) {
  if (*ticks) --*ticks;
}

static inline void exchange_bytes(byte *a, byte *b, size_t size) {
  for (size_t i = 0; i < size; i++) {
    const byte old = a[i];
    a[i] = b[i];
    b[i] = old;
  }
}
#define EXCHANGE(a, b) exchange_bytes((byte *)&(a), (byte *)&(b), sizeof(a))

/** Sorts equal parts of a state: nodes that differ only in their numbers behave alike. */
static inline void sort_bytes(void *parts, int count, size_t size) {
  byte *const first = parts;
  for (int i = 1; i < count; i++)
    for (byte *part = first + i * size; part > first && memcmp(part - size, part, size) > 0; part -= size)
      exchange_bytes(part - size, part, size);
}
#define SORT(array, count) sort_bytes(array, count, sizeof *(array))
