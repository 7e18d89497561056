// This header searches every reachable state, nearest first. The including program defines `State` (bytes only, no
// padding), the function `expand`, which calls `step` and `broken`, and the function `normalise`, which gives equivalent
// states the same bytes. The search compares whole states, not only their hashes.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>


static void expand(const State *state);
static void normalise(State *state);
static void print_state(const State *state);

static State *states;
static uint32_t *parents, *table;
static size_t state_count, state_room, table_size, state_limit = 400000000;
static uint64_t step_count;
static uint32_t expanding;
static const char *violation;

// To print the way to a violation, the search expands the states on that way once more, and prints the steps between.
static const State *sought;
static char sought_event[160];

static uint64_t hash_of(const State *state) {
  const uint8_t *bytes = (const uint8_t *)state;
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < sizeof(State); i++) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  hash ^= hash >> 29;
  hash *= 0xbf58476d1ce4e5b9ULL;
  return hash ^ (hash >> 32);
}

static void *resized(void *memory, size_t count, size_t size) {
  void *larger = realloc(memory, count * size);
  if (!larger) {
    printf("OUT OF MEMORY after %zu states\n", state_count);
    exit(3);
  }
  return larger;
}

static void grow_table(void) {
  free(table);
  table_size = table_size ? table_size * 2 : 1 << 16;
  table = resized(NULL, table_size, sizeof *table);
  memset(table, 0, table_size * sizeof *table);
  for (size_t i = 0; i < state_count; i++) {
    size_t at = hash_of(&states[i]) & (table_size - 1);
    while (table[at]) at = (at + 1) & (table_size - 1);
    table[at] = (uint32_t)i + 1;
  }
}

/** Adds a step from the expanded state. */
static void step(State next, const char *event, ...) {
  if (violation && !sought) return;
  normalise(&next);
  if (sought) {
    if (!sought_event[0] && !memcmp(&next, sought, sizeof next)) {
      va_list values;
      va_start(values, event);
      vsnprintf(sought_event, sizeof sought_event, event, values);
      va_end(values);
    }
    return;
  }
  step_count++;
  if ((state_count + 1) * 3 > table_size * 2) grow_table();
  size_t at = hash_of(&next) & (table_size - 1);
  for (; table[at]; at = (at + 1) & (table_size - 1))
    if (!memcmp(&states[table[at] - 1], &next, sizeof next)) return;
  if (state_count == state_room) {
    state_room = state_room ? state_room + state_room / 2 : 1 << 14;
    states = resized(states, state_room, sizeof *states);
    parents = resized(parents, state_room, sizeof *parents);
  }
  if (state_count == state_limit) {
    printf("GAVE UP after %zu states: nothing is known beyond\n", state_count);
    exit(3);
  }
  states[state_count] = next;
  parents[state_count] = expanding;
  table[at] = (uint32_t)++state_count;
}

/** Records that the present step breaks a rule. */
static void broken(const char *rule) {
  if (!violation) violation = rule;
}

static void print_way(uint32_t to) {
  if (parents[to] != UINT32_MAX) {
    print_way(parents[to]);
    sought = &states[to];
    sought_event[0] = 0;
    const State from = states[parents[to]];
    expand(&from);
    printf("  %s\n", sought_event);
  }
  print_state(&states[to]);
}

/** Returns 0 if no reachable state breaks a rule, 1 if one does. */
static int search(State start, int with_way) {
  const clock_t began = clock();
  expanding = UINT32_MAX;
  step(start, "start");
  for (size_t at = 0; at < state_count && !violation; at++) {
    expanding = (uint32_t)at;
    const State from = states[at];
    expand(&from);
  }
  const double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
  if (violation) {
    printf("BROKEN %s | %zu states, %.1f s\n", violation, state_count, seconds);
    if (with_way) print_way(expanding);
    return 1;
  }
  printf("COMPLETE %zu states, %llu steps, %.1f s\n", state_count, (unsigned long long)step_count, seconds);
  return 0;
}

/** One setting of a search, in the form `name=value`. */
typedef struct {
  const char *name;
  int value;
  const char *meaning;
} Setting;

static void read_settings(Setting *settings, int count, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *equals = strchr(argv[i], '=');
    int known = 0;
    for (int s = 0; s < count && equals; s++) {
      if (strlen(settings[s].name) != (size_t)(equals - argv[i])) continue;
      if (strncmp(settings[s].name, argv[i], strlen(settings[s].name))) continue;
      settings[s].value = atoi(equals + 1);
      known = 1;
    }
    if (known) continue;
    fprintf(stderr, "there is no setting %s; there are\n", argv[i]);
    for (int s = 0; s < count; s++)
      fprintf(stderr, "  %s=%d  %s\n", settings[s].name, settings[s].value, settings[s].meaning);
    exit(2);
  }
}
