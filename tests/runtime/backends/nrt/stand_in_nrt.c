/* A stand-in for libnrt, for tests: the same calls over host memory, no Neuron device anywhere.

   It is stricter than the real library where that finds mistakes: every handle is looked up before use, every access is
   checked against the tensor's size, every pass checks that its sets hold exactly the tensors that the model takes, that
   an aliased output is bound to its input's memory and that no other output lies over an input. A model with several
   ranks begins a pass on none before all have called nrt_execute, so calls made one after the other time out.

   What a model takes and gives is told to it beforehand, by the hash in the NEFF's header (stand_in_register), and what
   it computes is a function of the test's (stand_in_set_executor). All stand_in_* calls are the test's side. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, FAILURE = 1, INVALID = 2, INVALID_HANDLE = 3, RESOURCE = 4, TIMEOUT = 5, NOT_ENOUGH_NC = 9,
       UNSUPPORTED_NEFF = 10, UNINITIALIZED = 13, CLOSED = 14, BAD_INPUT = 1002 };
enum { NAME_MAX_ = 256, HEADER = 1024, HASH_AT = 172, MAJOR_AT = 24, NEWEST_MAJOR = 2, DIMS = 8 };

typedef struct { char name[NAME_MAX_]; int usage; size_t size; int dtype; uint32_t *shape; uint32_t ndim; } info_t;
typedef struct { uint64_t count; info_t infos[]; } infos_t;

typedef struct { char name[NAME_MAX_], alias_of[NAME_MAX_]; int usage, dtype; size_t size; uint32_t shape[DIMS], ndim; }
    entry_t;
typedef struct registered { uint8_t hash[32]; char name[NAME_MAX_]; entry_t *entries; size_t count;
                            struct registered *next; } registered_t;

typedef enum { TENSOR, SET, MODEL, KINDS } kind_t;
typedef struct object { kind_t kind; struct object *next; } object_t;
typedef struct { object_t head; uint8_t *data; size_t size; int vnc; char name[NAME_MAX_]; } tensor_t;
typedef struct binding { char name[NAME_MAX_]; tensor_t *tensor; struct binding *next; } binding_t;
typedef struct { object_t head; binding_t *bindings; } set_t;
typedef struct { object_t head; registered_t *what; uint32_t rank, ranks; } model_t;

typedef int32_t (*executor_t)(const char *name, uint32_t rank, void *inputs, void *outputs);

typedef struct count { char name[64]; int64_t calls, bytes; struct count *next; } count_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived;
static object_t *objects;
static registered_t *registered;
static count_t *counts;
static int initialized, closed_once;
static executor_t executor;
static char environment[4096];

static uint64_t version[4] = {2, 34, 10, 0};
static char detail[128] = "stand-in";
static uint32_t family = 5;
static int64_t capacity = INT64_MAX, in_use;
static double patience = 2.0;
static char failing[64];
static int fail_status, fail_vnc = -1, fail_after;

/* One barrier: the ranks of one pass. */
static uint32_t waiting, generation;

/* Timed waits must not notice when somebody sets the clock. */
__attribute__((constructor)) static void set_up(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&arrived, &attributes);
}

/* Bookkeeping. All functions below are called with the lock held unless they take it. */

static void note(const char *call, int64_t bytes) {
    count_t *c = counts;
    while (c && strcmp(c->name, call)) c = c->next;
    if (!c) {
        c = calloc(1, sizeof *c);
        snprintf(c->name, sizeof c->name, "%s", call);
        c->next = counts;
        counts = c;
    }
    c->calls++;
    c->bytes += bytes;
}

static int injected(const char *call, int vnc) {
    if (strcmp(failing, call) || (fail_vnc >= 0 && fail_vnc != vnc)) return OK;
    if (fail_after > 0) { fail_after--; return OK; }
    return fail_status;
}

static int begin(const char *call, int vnc, int64_t bytes) {
    note(call, bytes);
    int status = injected(call, vnc);
    if (status) return status;
    return initialized ? OK : closed_once ? CLOSED : UNINITIALIZED;
}

static int is(kind_t kind, const void *handle) {
    for (object_t *o = objects; o; o = o->next)
        if (o == handle) return o->kind == kind;
    return 0;
}

static void *add(kind_t kind, size_t size) {
    object_t *o = calloc(1, size);
    o->kind = kind;
    o->next = objects;
    objects = o;
    return o;
}

static void forget(void *handle) {
    for (object_t **at = &objects; *at; at = &(*at)->next)
        if (*at == handle) {
            *at = (*at)->next;
            free(handle);
            return;
        }
}

static tensor_t *bound(const set_t *set, const char *name) {
    for (binding_t *b = set->bindings; b; b = b->next)
        if (!strcmp(b->name, name)) return b->tensor;
    return NULL;
}

#define LOCKED(expression)           \
    do {                             \
        pthread_mutex_lock(&lock);   \
        int status_ = (expression);  \
        pthread_mutex_unlock(&lock); \
        return status_;              \
    } while (0)

/* The runtime as a whole */

static int init_(int framework) {
    note("nrt_init", 0);
    int status = injected("nrt_init", -1);
    if (status) return status;
    if (framework != 1 || initialized) return INVALID;
    static const char *names[] = {"NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "NEURON_LOGICAL_NC_CONFIG"};
    environment[0] = 0;
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        size_t used = strlen(environment);
        if (value) snprintf(environment + used, sizeof environment - used, "%s=%s\n", names[i], value);
    }
    initialized = 1;
    return OK;
}

int nrt_init(int framework, const char *fw_version, const char *fal_version) {
    (void)fw_version, (void)fal_version;
    LOCKED(init_(framework));
}

void nrt_close(void) {
    pthread_mutex_lock(&lock);
    note("nrt_close", 0);
    initialized = 0;
    closed_once = 1;
    pthread_mutex_unlock(&lock);
}

typedef struct { uint64_t major, minor, patch, maintenance; char detail[128], git_hash[64]; } version_t;

int nrt_get_version(version_t *found, size_t size) {
    if (size != sizeof *found) return INVALID;
    memset(found, 0, size);
    memcpy(found, version, sizeof version);
    memcpy(found->detail, detail, sizeof detail);
    LOCKED((note("nrt_get_version", 0), injected("nrt_get_version", -1)));
}

typedef struct { uint32_t family, size; char arch_name[16], device_revision[8]; } instance_t;

int nrt_get_instance_info(instance_t *found, size_t size) {
    if (size != sizeof *found) return INVALID;
    memset(found, 0, size);
    found->family = family;
    LOCKED(begin("nrt_get_instance_info", -1, 0));
}

/* Tensors */

static int allocate_(int placement, int vnc, size_t size, const char *name, tensor_t **out) {
    int status = begin("nrt_tensor_allocate", vnc, (int64_t)size);
    if (status) return status;
    if (placement != 0 || vnc < 0) return INVALID;
    if (in_use + (int64_t)size > capacity) return RESOURCE;
    tensor_t *tensor = add(TENSOR, sizeof *tensor);
    tensor->data = malloc(size ? size : 1);
    memset(tensor->data, 0xA5, size); /* what was there before: no caller may count on zeros */
    tensor->size = size;
    tensor->vnc = vnc;
    snprintf(tensor->name, sizeof tensor->name, "%s", name ? name : "");
    in_use += (int64_t)size;
    *out = tensor;
    return OK;
}

int nrt_tensor_allocate(int placement, int vnc, size_t size, const char *name, tensor_t **out) {
    LOCKED(allocate_(placement, vnc, size, name, out));
}

void nrt_tensor_free(tensor_t **tensor) {
    pthread_mutex_lock(&lock);
    note("nrt_tensor_free", 0);
    if (is(TENSOR, *tensor)) {
        in_use -= (int64_t)(*tensor)->size;
        free((*tensor)->data);
        forget(*tensor);
        *tensor = NULL;
    } else {
        note("wrong frees", 0);
    }
    pthread_mutex_unlock(&lock);
}

static int access_(const char *call, const tensor_t *tensor, size_t offset, size_t size) {
    int known = is(TENSOR, tensor), status = begin(call, known ? tensor->vnc : -1, (int64_t)size);
    if (status) return status;
    if (!known) return INVALID_HANDLE;
    return offset > tensor->size || size > tensor->size - offset ? INVALID : OK;
}

int nrt_tensor_write(tensor_t *tensor, const void *from, size_t offset, size_t size) {
    pthread_mutex_lock(&lock);
    int status = access_("nrt_tensor_write", tensor, offset, size);
    if (!status) memcpy(tensor->data + offset, from, size);
    pthread_mutex_unlock(&lock);
    return status;
}

int nrt_tensor_read(const tensor_t *tensor, void *to, size_t offset, size_t size) {
    pthread_mutex_lock(&lock);
    int status = access_("nrt_tensor_read", tensor, offset, size);
    if (!status) memcpy(to, tensor->data + offset, size);
    pthread_mutex_unlock(&lock);
    return status;
}

int nrt_tensor_memset(tensor_t *tensor, uint64_t offset, int value, size_t size) {
    pthread_mutex_lock(&lock);
    int status = access_("nrt_tensor_memset", tensor, offset, size);
    if (!status) memset(tensor->data + offset, value, size);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Sets */

static int new_set_(set_t **out) {
    int status = begin("nrt_allocate_tensor_set", -1, 0);
    if (!status) *out = add(SET, sizeof **out);
    return status;
}

int nrt_allocate_tensor_set(set_t **out) { LOCKED(new_set_(out)); }

static int put_(set_t *set, const char *name, tensor_t *tensor) {
    int status = begin("nrt_add_tensor_to_tensor_set", -1, 0);
    if (status) return status;
    if (!is(SET, set) || !is(TENSOR, tensor)) return INVALID_HANDLE;
    binding_t *b = set->bindings;
    while (b && strcmp(b->name, name)) b = b->next;
    if (!b) {
        b = calloc(1, sizeof *b);
        snprintf(b->name, sizeof b->name, "%s", name);
        b->next = set->bindings;
        set->bindings = b;
    }
    b->tensor = tensor;
    return OK;
}

int nrt_add_tensor_to_tensor_set(set_t *set, const char *name, tensor_t *tensor) { LOCKED(put_(set, name, tensor)); }

void nrt_destroy_tensor_set(set_t **set) {
    pthread_mutex_lock(&lock);
    note("nrt_destroy_tensor_set", 0);
    if (is(SET, *set)) {
        for (binding_t *b = (*set)->bindings, *next; b; b = next) {
            next = b->next;
            free(b);
        }
        forget(*set);
        *set = NULL;
    } else {
        note("wrong frees", 0);
    }
    pthread_mutex_unlock(&lock);
}

/* Models */

static int load_(const char *call, const uint8_t *neff, size_t size, int vnc, uint32_t rank, uint32_t ranks,
                 model_t **out) {
    int status = begin(call, vnc, (int64_t)size);
    if (status) return status;
    const char *cores = getenv("NEURON_RT_NUM_CORES");
    if (cores && atoi(cores) && vnc >= atoi(cores)) return NOT_ENOUGH_NC;
    if (size < HEADER) return INVALID;
    uint64_t major;
    memcpy(&major, neff + MAJOR_AT, sizeof major);
    if (major > NEWEST_MAJOR) return UNSUPPORTED_NEFF;
    registered_t *what = registered;
    while (what && memcmp(what->hash, neff + HASH_AT, sizeof what->hash)) what = what->next;
    if (!what) return INVALID;
    model_t *model = add(MODEL, sizeof *model);
    model->what = what;
    model->rank = rank;
    model->ranks = ranks;
    *out = model;
    return OK;
}

/* All ranks of `ranks` come together here, or none goes on: what a collective operation does. Lock held. */
static int meet(uint32_t ranks) {
    uint32_t mine = generation;
    if (++waiting == ranks) {
        waiting = 0;
        generation++;
        pthread_cond_broadcast(&arrived);
        return OK;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)((patience - (long)patience) * 1e9);
    until.tv_sec += (long)patience + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    while (mine == generation)
        if (pthread_cond_timedwait(&arrived, &lock, &until) == ETIMEDOUT && mine == generation) {
            waiting--;
            return TIMEOUT;
        }
    return OK;
}

int nrt_load(const void *neff, size_t size, int32_t vnc, int32_t vnc_count, model_t **out) {
    if (vnc_count != -1) return INVALID;
    LOCKED(load_("nrt_load", neff, size, vnc, 0, 1, out));
}

int nrt_load_collectives(const void *neff, size_t size, int32_t vnc, int32_t vnc_count, uint32_t rank, uint32_t ranks,
                         model_t **out) {
    if (vnc_count != -1 || rank >= ranks) return INVALID;
    pthread_mutex_lock(&lock);
    int status = load_("nrt_load_collectives", neff, size, vnc, rank, ranks, out);
    if (!status && (status = meet(ranks))) forget(*out);
    pthread_mutex_unlock(&lock);
    return status;
}

static int unload_(model_t *model) {
    int status = begin("nrt_unload", -1, 0);
    if (status) return status;
    if (!is(MODEL, model)) return INVALID_HANDLE;
    forget(model);
    return OK;
}

int nrt_unload(model_t *model) { LOCKED(unload_(model)); }

static int infos_(model_t *model, infos_t **out) {
    int status = begin("nrt_get_model_tensor_info", -1, 0);
    if (status) return status;
    if (!is(MODEL, model)) return INVALID_HANDLE;
    size_t count = model->what->count;
    infos_t *infos = calloc(1, sizeof *infos + count * sizeof(info_t));
    infos->count = count;
    for (size_t i = 0; i < count; i++) {
        entry_t *entry = &model->what->entries[i];
        info_t *info = &infos->infos[i];
        memcpy(info->name, entry->name, sizeof info->name);
        info->usage = entry->usage;
        info->size = entry->size;
        info->dtype = entry->dtype;
        info->shape = entry->shape;
        info->ndim = entry->ndim;
    }
    *out = infos;
    note("live infos", 1);
    return OK;
}

int nrt_get_model_tensor_info(model_t *model, infos_t **out) { LOCKED(infos_(model, out)); }

int nrt_free_model_tensor_info(infos_t *infos) {
    free(infos);
    LOCKED((note("live infos", -1), OK));
}

/* Whether the sets are what the model takes: every tensor there, of its size, on its core, in no other's place. */
static int fits(const model_t *model, const set_t *inputs, const set_t *outputs) {
    size_t expected[2] = {0, 0}, held[2] = {0, 0};
    for (size_t i = 0; i < model->what->count; i++) {
        const entry_t *entry = &model->what->entries[i];
        const tensor_t *tensor = bound(entry->usage ? outputs : inputs, entry->name);
        expected[entry->usage]++;
        if (!tensor || !is(TENSOR, tensor) || tensor->size != entry->size || tensor->vnc != (int)model->rank) return 0;
        if (!entry->usage) continue;
        if (entry->alias_of[0] && bound(inputs, entry->alias_of) != tensor) return 0;
        for (binding_t *b = inputs->bindings; b && !entry->alias_of[0]; b = b->next)
            if (b->tensor == tensor) return 0;
    }
    for (binding_t *b = inputs->bindings; b; b = b->next) held[0]++;
    for (binding_t *b = outputs->bindings; b; b = b->next) held[1]++;
    return held[0] == expected[0] && held[1] == expected[1];
}

int nrt_execute(model_t *model, const set_t *inputs, set_t *outputs) {
    pthread_mutex_lock(&lock);
    int known = is(MODEL, model), status = begin("nrt_execute", known ? (int)model->rank : -1, 0);
    if (!status && (!known || !is(SET, inputs) || !is(SET, outputs))) status = INVALID_HANDLE;
    if (!status && !fits(model, inputs, outputs)) status = BAD_INPUT;
    if (!status && model->ranks > 1) status = meet(model->ranks);
    executor_t compute = executor;
    const char *name = known ? model->what->name : "";
    uint32_t rank = known ? model->rank : 0;
    pthread_mutex_unlock(&lock);
    if (status) return status;
    return compute ? compute(name, rank, (void *)inputs, outputs) : FAILURE;
}

/* The test's side */

/* The model behind `hash`: lines of "in|out NAME DTYPE SIZE ALIAS_OF|- NDIM DIM...". */
int stand_in_register(const uint8_t *hash, const char *name, const char *table) {
    registered_t *what = calloc(1, sizeof *what);
    memcpy(what->hash, hash, sizeof what->hash);
    snprintf(what->name, sizeof what->name, "%s", name);
    char *text = strdup(table), *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line) continue;
        what->entries = realloc(what->entries, (what->count + 1) * sizeof *what->entries);
        entry_t *entry = &what->entries[what->count++];
        memset(entry, 0, sizeof *entry);
        char usage[8];
        int used = 0;
        if (sscanf(line, "%7s %255s %d %zu %255s %u%n", usage, entry->name, &entry->dtype, &entry->size,
                   entry->alias_of, &entry->ndim, &used) != 6 || entry->ndim > DIMS)
            return INVALID;
        entry->usage = !strcmp(usage, "out");
        if (!strcmp(entry->alias_of, "-")) entry->alias_of[0] = 0;
        for (uint32_t i = 0; i < entry->ndim; i++) entry->shape[i] = (uint32_t)strtoul(line + used, &line, 10), used = 0;
    }
    free(text);
    what->next = registered;
    registered = what;
    return OK;
}

void stand_in_set_executor(executor_t function) { executor = function; }

/* The tensor bound under `name` in a set that an executor was given. */
int stand_in_tensor(const set_t *set, const char *name, void **data, size_t *size) {
    pthread_mutex_lock(&lock);
    tensor_t *tensor = bound(set, name);
    if (tensor) *data = tensor->data, *size = tensor->size;
    pthread_mutex_unlock(&lock);
    return tensor ? OK : INVALID;
}

void stand_in_set_version(uint64_t major, uint64_t minor, uint64_t patch, uint64_t maintenance, const char *text) {
    uint64_t numbers[4] = {major, minor, patch, maintenance};
    memcpy(version, numbers, sizeof version);
    snprintf(detail, sizeof detail, "%s", text);
}

void stand_in_set_family(uint32_t value) { family = value; }
void stand_in_set_capacity(int64_t bytes) { capacity = bytes; }
void stand_in_set_patience(double seconds) { patience = seconds; }

/* `call` gives `status` from its (after + 1)th use on, for one core or, with vnc -1, for all; status 0 ends that. */
void stand_in_fail(const char *call, int status, int vnc, int after) {
    pthread_mutex_lock(&lock);
    snprintf(failing, sizeof failing, "%s", status ? call : "");
    fail_status = status, fail_vnc = vnc, fail_after = after;
    pthread_mutex_unlock(&lock);
}

/* How often `call` was called, or with `bytes` how many bytes that was about. */
int64_t stand_in_count(const char *call, int bytes) {
    pthread_mutex_lock(&lock);
    count_t *c = counts;
    while (c && strcmp(c->name, call)) c = c->next;
    int64_t found = !c ? 0 : bytes ? c->bytes : c->calls;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Objects that were made and not freed: 0 tensors, 1 sets, 2 models. */
int64_t stand_in_live(int kind) {
    int64_t found = 0;
    pthread_mutex_lock(&lock);
    for (object_t *o = objects; o; o = o->next) found += (int)o->kind == kind;
    pthread_mutex_unlock(&lock);
    return found;
}

const char *stand_in_environment(void) { return environment; }

/* As if the library were new, but for what was never freed: that stays counted until here. */
void stand_in_reset(void) {
    pthread_mutex_lock(&lock);
    while (objects) {
        if (objects->kind == TENSOR) free(((tensor_t *)objects)->data);
        forget(objects);
    }
    registered = NULL;
    while (counts) {
        count_t *next = counts->next;
        free(counts);
        counts = next;
    }
    initialized = closed_once = 0;
    executor = NULL;
    environment[0] = failing[0] = 0;
    version[0] = 2, version[1] = 34, version[2] = 10, version[3] = 0;
    snprintf(detail, sizeof detail, "stand-in");
    family = 5;
    capacity = INT64_MAX, in_use = 0;
    patience = 2.0;
    waiting = 0;
    pthread_mutex_unlock(&lock);
}
