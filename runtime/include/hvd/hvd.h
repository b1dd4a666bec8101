/* hvd.h - the C interface of libhvd, the collectives runtime. It is plain C99: no framework type and no C++.
 *
 * These rules hold for every function below:
 *  1. A NULL context means the process's default context, which hvd_init makes. Explicit contexts (hvd_create) let one
 *     process hold several ranks; the tests run N ranks as threads that way.
 *  2. A function returns an hvd_status (0 is success, the numbers never change) unless its comment says otherwise.
 *     hvd_last_error() is the text of this thread's last failure; it names who, what, and what to try.
 *  3. Structs start with their own size in bytes and a version, so that a caller compiled against an older
 *     header keeps working. Fill them with the HVD_*_INIT macros.
 *  4. The memory that an hvd_op points to (input, output) belongs to the caller. It must stay valid and untouched until
 *     hvd_wait of that handle has returned (or hvd_poll has reported it done). Every function that takes an hvd_op
 *     copies the rest of it (the struct itself, shape, name, splits) before it returns. Memory that hvd_result
 *     returns belongs to the runtime, and is valid until hvd_release of the handle, or until the rank leaves the job
 *     (hvd_shutdown, hvd_destroy).
 *     The memory may be a GPU's (hvd_op.device). Then the GPU, and not the host, waits for the work
 *     that the caller has put on hvd_op.stream before hvd_enqueue. What hvd_result returns is GPU memory too.
 *  5. Any thread may call any function. No function aborts the process or throws.
 *  6. Every wait ends: with the result, or with an error that names the rank or link that failed.
 */
#ifndef HVD_HVD_H_
#define HVD_HVD_H_

#include <stdint.h>

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_ABI_VERSION 1 /* grows with every addition to a release; callers of an older header keep working */
#define HVD_MAX_DIMS 16
#define HVD_MAX_GROUP 4096

typedef struct hvd_ctx hvd_ctx;

typedef int32_t hvd_status;
#define HVD_OK 0
#define HVD_INVALID 1     /* an argument of this call is wrong; nothing was started */
#define HVD_NOT_FOUND 2   /* no such handle, process set, ... */
#define HVD_UNREACHABLE 3 /* a peer's address does not answer */
#define HVD_AUTH 4        /* a peer could not prove that it knows the job secret */
#define HVD_TIMEOUT 5     /* a deadline passed */
#define HVD_PROTOCOL 6    /* a peer sent what it must not */
#define HVD_LOST_PEER 7   /* a rank, node or link of this job is gone; the text names it */
#define HVD_CANCELLED 8   /* the context was shut down while the work was pending */
#define HVD_RESOURCE 9    /* out of memory, descriptors, disk, ... */
#define HVD_SYSTEM 10     /* a system call failed */
#define HVD_INTERNAL 11   /* a defect of libhvd */
#define HVD_NOT_INITIALIZED 12
#define HVD_MISMATCH 13 /* ranks disagree (shape, dtype, op, ...) or ask for what cannot be; raised on every rank */

/* Kinds of operation.
 *  reducescatter: a reduction of which each rank receives its own rows, an even share of dimension 0. If the rows
 *  do not divide evenly, the lowest ranks receive one row more.
 *  alltoall: each rank sends some of its rows to each rank; dimension 0 may differ between ranks.
 *  join: this rank has no more data. Until all ranks have joined, it contributes zeros to the others' allreduces
 *  (which still average over all ranks) and takes part in their barriers; other operations fail on all ranks
 *  meanwhile. The result is one int32: the rank that joined last. A join has no name, and nothing else can be
 *  started on this rank while it is pending. */
#define HVD_ALLREDUCE 0
#define HVD_ALLGATHER 1
#define HVD_BROADCAST 2
#define HVD_BARRIER 3
#define HVD_REDUCESCATTER 4
#define HVD_ALLTOALL 5
#define HVD_JOIN 6

/* Reduction operators (Horovod's numbers). */
#define HVD_AVERAGE 0
#define HVD_SUM 1
#define HVD_ADASUM 2 /* see hvd_op.reduce_op */
#define HVD_MIN 3
#define HVD_MAX 4
#define HVD_PRODUCT 5

/* Element types. */
#define HVD_UINT8 0
#define HVD_INT8 1
#define HVD_UINT16 2
#define HVD_INT16 3
#define HVD_INT32 4
#define HVD_INT64 5
#define HVD_FLOAT16 6
#define HVD_BFLOAT16 7
#define HVD_FLOAT32 8
#define HVD_FLOAT64 9
#define HVD_BOOL 10

#define HVD_DEVICE_CPU (-1)

/* How to join a job, for hvd_create and hvd_init. With NULL (or with rank < 0) everything is read from the rank
 * environment that hvdrun sets (runtime/base/contract.h). Without that environment, ranks that mpirun or srun
 * started find each other through MPI. MPI is loaded for this, and initialised if the program has not done so. Any
 * other process is a job of size 1. */
typedef struct hvd_options {
  uint32_t size;
  uint32_t version;
  double timeout_s; /* limit for joining, in seconds; <= 0: the environment's, or 60 */
  /* A job of some of the ranks that mpirun has started: at most one of the two. */
  const int32_t* ranks; /* which ranks of MPI_COMM_WORLD form the job, numbered in this order; every rank passes the
                           same list */
  int32_t rank_count;   /* length of ranks; 0: all ranks of MPI_COMM_WORLD */
  int32_t has_mpi_comm; /* 1: the job is the ranks of mpi_comm, in its order */
  int32_t mpi_comm;     /* a communicator, as MPI_Comm_c2f returns it; the runtime copies it */
  int32_t reserved;
} hvd_options;
#define HVD_OPTIONS_INIT {sizeof(hvd_options), 1, 0.0, 0, 0, 0, 0, 0}

/* One collective operation. Every rank of the process set enqueues an operation of the same name; it starts when
 * all have. */
typedef struct hvd_op {
  uint32_t size;
  uint32_t version;
  int32_t kind;        /* HVD_ALLREDUCE ... HVD_JOIN */
  int32_t dtype;       /* HVD_FLOAT32 ...; not used by a barrier or join */
  int32_t reduce_op;   /* allreduce, reducescatter: HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT. An allreduce
                          of a floating type may also use HVD_ADASUM, which combines the tensors a and b of two
                          ranks, each tensor by itself, to (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b. More ranks,
                          any number of them, combine in a binary tree: first the ranks of each node, then the
                          nodes. On GPUs the tensors of a node's ranks are averaged instead */
  int32_t root_rank;   /* broadcast: a rank of the job, also in a process set */
  int32_t process_set; /* 0: all ranks; otherwise the number that hvd_process_set_add returned for a set of which
                          this rank is a member */
  int32_t device;      /* HVD_DEVICE_CPU, or the GPU that holds input and output, numbered as CUDA numbers the GPUs
                          that the process sees. A rank uses the same GPU in all its calls. Either all ranks of an
                          operation use GPUs or none does. `splits` and `shape` are always in host memory */
  int32_t ndim;        /* 0 ... HVD_MAX_DIMS; a scalar has 0 */
  int32_t reserved;
  const int64_t* shape;  /* ndim extents of this rank's input, each >= 0 */
  const char* name;      /* the same on every rank; NULL: "<kind>.noname.<n>", where n counts this rank's unnamed
                            calls; in the set of all ranks, those since the last join */
  const void* input;     /* contiguous, and aligned for its element type */
  void* output;          /* allreduce, broadcast: as large as the input; it may be the input itself. No other
                            unfinished operation may use this memory or any part of it. After an error its content is
                            undefined. allgather, reducescatter, alltoall: NULL; the runtime allocates the result, see
                            hvd_result */
  double prescale;       /* allreduce, reducescatter: factor for the input before the reduction ... */
  double postscale;      /* ... and for the result after it */
  void* stream;          /* the CUDA stream (cudaStream_t, CUstream) after whose work the memory is ready. A stream
                            from which a CUDA graph is being captured is refused. NULL: the default stream, or
                            HVD_DEVICE_CPU */
  const int32_t* splits; /* alltoall: how many rows go to each rank, beginning with the first rows for rank 0; their
                            sum is at most shape[0]. NULL: the same number for each rank. Read before hvd_enqueue
                            returns */
  int32_t split_count;   /* the number of ranks; 0 if splits is NULL */
  int32_t priority;      /* of the operations that are ready on all ranks at once, the highest priority goes first; the
                            lowest rank's value counts, and within a group the first operation's */
} hvd_op;
#define HVD_OP_INIT \
  {sizeof(hvd_op), 1, 0, HVD_FLOAT32, HVD_SUM, 0, 0, HVD_DEVICE_CPU, 0, 0, 0, 0, 0, 0, 1.0, 1.0, 0, 0, 0, 0}

/* The result of a finished operation. */
typedef struct hvd_output {
  uint32_t size;
  uint32_t version;
  void* data; /* allgather: the concatenation along dimension 0; reducescatter: this rank's rows; alltoall: the rows
                 that were received, in the order of their ranks; join: one int32; otherwise the op's output */
  int64_t size_bytes;
  int32_t ndim;
  int32_t reserved;
  int64_t shape[HVD_MAX_DIMS];
  const int32_t* received_splits; /* alltoall: how many rows came from each rank; otherwise NULL */
  int32_t received_count;         /* the number of ranks, or 0 */
  int32_t reserved2;
} hvd_output;
#define HVD_OUTPUT_INIT {sizeof(hvd_output), 1, 0, 0, 0, 0, {0}, 0, 0, 0}

/* ---- the process's job ---- */

/* Joins the job. Blocks until every rank has joined or the limit has passed. Calling it again for the default
 * context has no effect. */
HVD_API hvd_status hvd_init(const hvd_options* options);
/* Leaves the job. Pending operations complete with HVD_CANCELLED here, and with HVD_LOST_PEER on other ranks.
 * hvd_init may be called again afterwards. It is not an error to call this when not initialised. */
HVD_API hvd_status hvd_shutdown(void);
/* Returns 1 or 0. */
HVD_API int32_t hvd_is_initialized(void);

/* Reports a failure of this process to hvdrun at once, so that the first failure of a job is
 * known whichever process ends first. It takes at most one second and waits for no other rank. Returns
 * HVD_NOT_FOUND if hvdrun has not started this process. */
#define HVD_FAILURE_ENDS 0    /* the program ends because of a failure of its own; hvdrun stops the job */
#define HVD_FAILURE_FOLLOWS 1 /* the program ends because an operation failed when another rank ended */
#define HVD_FAILURE_NOTICED 2 /* something failed, and the program may go on; counts only if the process fails soon */
/* exit_code: the code that the process will exit with, 0 to 255. has_committed: 0 if the process has saved nothing of
 * an elastic job's training since it started; hvdrun does not start ranks for ever that fail so. what: one line that
 * describes the failure; text beyond 1000 bytes is cut off. */
HVD_API hvd_status hvd_report_failure(int32_t kind, int32_t exit_code, int32_t has_committed, const char* what);

/* Create and destroy an explicit context. */
HVD_API hvd_status hvd_create(const hvd_options* options, hvd_ctx** out);
HVD_API void hvd_destroy(hvd_ctx* ctx);

/* Each returns the number, or -1 when not initialised. */
HVD_API int32_t hvd_rank(hvd_ctx* ctx);
HVD_API int32_t hvd_size(hvd_ctx* ctx);
HVD_API int32_t hvd_local_rank(hvd_ctx* ctx);
HVD_API int32_t hvd_local_size(hvd_ctx* ctx);
HVD_API int32_t hvd_cross_rank(hvd_ctx* ctx);
HVD_API int32_t hvd_cross_size(hvd_ctx* ctx);

/* ---- process sets ----
 * A process set is a subset of the ranks that runs operations of its own, beside those of all ranks. Each set has
 * its own operation names. In an operation of a set, ranks, splits and shares are counted within the set, in the
 * order of the job's ranks. Set 0 is the set of all ranks. */

/* Makes the set of these ranks (in any order, none twice) and its links. Every rank of the job, member or not,
 * calls it at the same point in its sequence of calls. All receive the same number, which is never used again.
 * Blocks until all have called. Returns HVD_INVALID on all ranks if a set of the same ranks exists, and
 * HVD_MISMATCH if ranks name different ones. */
HVD_API hvd_status hvd_process_set_add(hvd_ctx* ctx, const int32_t* ranks, int32_t count, int32_t* number);
/* The same, but only the members call it. The set then exists on the other ranks too, without a
 * call from them. Returns HVD_INVALID on a rank that is not a member. */
HVD_API hvd_status hvd_process_set_add_by_members(hvd_ctx* ctx, const int32_t* ranks, int32_t count, int32_t* number);
/* Removes the set; every rank of the job calls it, as above. Operations that were started in the set before, and
 * are not refused, are done first. It is refused (HVD_INVALID, and the set stays) for set 0, and while some of the
 * set's operations wait for other ranks. */
HVD_API hvd_status hvd_process_set_remove(hvd_ctx* ctx, int32_t number);
/* Returns how many sets there are, and the first `capacity` of their numbers, ascending; numbers may be NULL if
 * capacity is 0. */
HVD_API hvd_status hvd_process_set_numbers(hvd_ctx* ctx, int32_t* numbers, int32_t capacity, int32_t* count);
/* Returns how many ranks the set has, and the first `capacity` of them, ascending. HVD_NOT_FOUND: there is no such
 * set. */
HVD_API hvd_status hvd_process_set_ranks(hvd_ctx* ctx, int32_t number, int32_t* ranks, int32_t capacity,
                                         int32_t* count);

/* ---- buffers ---- */

/* Allocates memory for tensors that are reduced again and again, such as gradients. An allreduce of all ranks
 * (process set 0), in place, on the same part of the same buffer on each rank, copies nothing within a node. For
 * every other operation it is ordinary memory. Every rank of the job calls this at the same point in its sequence
 * of calls, with the same size (1 byte to 1 TiB). The memory is zeroed and begins at a page boundary. */
HVD_API hvd_status hvd_buffer_create(hvd_ctx* ctx, int64_t size_bytes, void** data);
/* Frees the buffer; every rank of the job calls it, as above. A buffer that is not freed keeps its memory after
 * hvd_shutdown too, until the process ends. */
HVD_API hvd_status hvd_buffer_destroy(hvd_ctx* ctx, void* data);

/* ---- operations ---- */

/* Starts one operation and returns at once; *handle (> 0) names the operation until hvd_release. */
HVD_API hvd_status hvd_enqueue(hvd_ctx* ctx, const hvd_op* op, int64_t* handle);
/* Does what hvd_enqueue and hvd_wait do, in one call. No other thread has to wake up for it, so it is the fastest
 * way to run a small operation. *handle is 0 if nothing was started; otherwise it must be released, even if the
 * operation failed. `handle` may be NULL if the result is in the caller's memory or there is
 * none; then there is nothing to release. */
HVD_API hvd_status hvd_execute(hvd_ctx* ctx, const hvd_op* op, int64_t* handle);
/* Starts a group of `count` (1 ... HVD_MAX_GROUP) operations. They have the same kind (HVD_ALLREDUCE,
 * HVD_ALLGATHER or HVD_REDUCESCATTER), operator and scales; every rank passes the same ones in the same order.
 * None is done before all ranks have asked for all of them, and they travel together however large they are. If
 * one cannot be done, none is. handles[i] names ops[i]. */
HVD_API hvd_status hvd_enqueue_group(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count, int64_t* handles);
/* Does what hvd_enqueue_group and hvd_finish do, in one call: no other thread has to wake up for it, and nothing is
 * left to release. The results are in the caller's memory, so the operations are allreduces (HVD_INVALID). */
HVD_API hvd_status hvd_execute_group(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count);
/* Does what hvd_enqueue does for `count` (0 ... HVD_MAX_GROUP) independent operations in one call;
 * handles[i] names ops[i]. It stops at the first operation that is refused; the handle of that one and of all
 * later ones is 0. `waits` says what the caller does next. HVD_WAITS_NEXT: it calls hvd_finish (or hvd_wait) next,
 * and no other thread wakes up for these operations before. HVD_WAITS_SOON: it probably does so
 * soon; another thread wakes up only if it has not within about 5 ms. */
#define HVD_GOES_ON 0
#define HVD_WAITS_NEXT 1
#define HVD_WAITS_SOON 2
HVD_API hvd_status hvd_enqueue_many(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count, int32_t waits,
                                    int64_t* handles);
/* Sets *done to 1 if hvd_wait would not block. */
HVD_API hvd_status hvd_poll(hvd_ctx* ctx, int64_t handle, int32_t* done);
/* Blocks until the operation has finished, and returns the operation's status. It may be called more than once.
 * With HOROVOD_ENABLE_ASYNC_COMPLETION=1 an operation on a GPU counts as finished on the host once it has been
 * launched there. Work that the caller puts on hvd_op.stream after hvd_wait (or hvd_finish, hvd_execute) runs
 * after the operation. */
HVD_API hvd_status hvd_wait(hvd_ctx* ctx, int64_t handle);
/* Calls `callback` once with `arg` when the operation has ended. It receives the status that
 * hvd_wait will return and, for a failure, the error text (valid during the call; otherwise NULL). It runs on a
 * thread of the runtime, on a thread that waits for another operation, or on the caller's own thread if the
 * operation had already ended. It has returned before any hvd_wait for the operation does. No other operation of
 * the job makes progress until it returns, so it should only note the result or wake up a thread of the program.
 * It may not call this library (HVD_INVALID). An operation has at most one callback. After hvd_enqueue_many with
 * `waits`, the callback is called while some thread waits. */
typedef void (*hvd_callback)(void* arg, hvd_status status, const char* error);
HVD_API hvd_status hvd_on_done(hvd_ctx* ctx, int64_t handle, hvd_callback callback, void* arg);
/* Waits until all of `count` operations have ended, or until `microseconds` have passed (up to a
 * millisecond more if the thread slept). While it waits, it works on the operations as hvd_wait does; with 0 it
 * only looks. *done is 1 if all have ended: then hvd_wait and hvd_finish, which report the outcome, do not block.
 * Operations that have not ended continue on their own. */
HVD_API hvd_status hvd_wait_some(hvd_ctx* ctx, const int64_t* handles, int32_t count, int64_t microseconds,
                                 int32_t* done);
/* Does what hvd_on_done does for `count` operations together, none of which may have a callback yet. The
 * callback is called once, when all have ended, with the status and text of the first that failed, or HVD_OK and
 * NULL. If all had ended already, it is called on the caller's thread before this function returns. If this
 * function returns an error, the callback is never called. */
HVD_API hvd_status hvd_on_all_done(hvd_ctx* ctx, const int64_t* handles, int32_t count, hvd_callback callback,
                                   void* arg);
/* Returns the result of the finished operation; rule 4 says how long it is valid. out->size and out->version must be
 * set. */
HVD_API hvd_status hvd_result(hvd_ctx* ctx, int64_t handle, hvd_output* out);
/* Copies the result of a finished operation to the caller's memory, if the runtime allocated the
 * result (allgather, alltoall, reducescatter). size_bytes must be the size of the result. A result on a GPU is
 * copied to GPU or host memory, on `stream`, after the operation and after all work that the stream has by now.
 * The host does not wait for this copy unless `to` is pageable memory. hvd_release may follow at once. A result on
 * the host is copied before the function returns, and `stream` must be NULL. */
HVD_API hvd_status hvd_fetch(hvd_ctx* ctx, int64_t handle, void* to, int64_t size_bytes, void* stream);
/* Frees a handle. If its operation is still pending, waits for it first. */
HVD_API hvd_status hvd_release(hvd_ctx* ctx, int64_t handle);
/* Does what hvd_wait and hvd_release do for `count` handles in one call, for operations whose results need not be
 * fetched. It waits for all of them, even if one fails; the status and text are those of the first failure.
 * Each handle is set to 0 when it is released, and handles that are 0 already are skipped. */
HVD_API hvd_status hvd_finish(hvd_ctx* ctx, int64_t* handles, int32_t count);

/* ---- tensors of frameworks ---- */

/* Fills a DLTensor (DLPack, version 1) with what the object is, and returns 0. Frameworks offer such a function as
 * dltensor_from_py_object_no_sync. */
typedef int (*hvd_tensor_view)(void* object, void* dl_tensor);
/* Sets the memory of `count` operations (`which`: input, output or both) to that of the tensors, in one call for all of
 * them. The tensors must be of the operations' types and shapes, contiguous and in host memory. Otherwise, and if
 * `view` returns another number than 0, it returns HVD_MISMATCH; some operations may have their memory by then. `view`
 * is called on this thread, which must hold the locks that it needs (Python's). It needs no context. */
#define HVD_INPUT 1
#define HVD_OUTPUT 2
HVD_API hvd_status hvd_set_memory(hvd_op* const* ops, void* const* objects, int32_t count, int32_t which,
                                  hvd_tensor_view view);

/* ---- operations in the order in which they end ----
 * A queue is for threads of a program that handle each result as it comes; several threads may serve one queue. */

typedef struct hvd_queue hvd_queue;
HVD_API hvd_status hvd_queue_create(hvd_queue** out);
/* No thread may be inside a call with this queue. Operations that were put and have not ended yet are not
 * affected. */
HVD_API void hvd_queue_destroy(hvd_queue* queue);
/* hvd_queue_next will return this handle once, when its operation has ended, whether it failed or not. This
 * includes an operation that had already ended, and the end of the job. It takes the place of the operation's one
 * callback (hvd_on_done). Handle 0 is no operation and is returned at once, which serves to wake up a waiting
 * thread. */
HVD_API hvd_status hvd_queue_put(hvd_queue* queue, hvd_ctx* ctx, int64_t handle);
/* Blocks until there is a handle; returns HVD_TIMEOUT after timeout_s seconds. hvd_wait for that handle then
 * returns at once. */
HVD_API hvd_status hvd_queue_next(hvd_queue* queue, double timeout_s, int64_t* handle);

/* ---- counters, proofs and the timeline ---- */

/* Counts what one process set has done on this rank since the set was made. Operations overlap in time, so the
 * sums of their times may exceed the time that has passed. */
typedef struct hvd_counters {
  uint32_t size;
  uint32_t version;
  uint64_t operations; /* operations that finished without error */
  uint64_t failures;   /* operations that failed with an error of their own, such as a mismatch, and not by the end
                          of the job */
  uint64_t steps;      /* collectives that the operations took; fused operations share one */
  uint64_t bytes;      /* total size of the operations' inputs */
  double negotiate_s;  /* seconds from hvd_enqueue until this rank knew that all ranks are ready, summed over
                          operations. Small operations that the ranks of a node do directly, without a decision of
                          rank 0, add nothing */
  double wait_s;       /* seconds from then until the operation began, summed over operations */
  double move_s;       /* seconds from begin to end of the steps */
  uint64_t sleeps;     /* of the whole engine, whatever the set: how often a thread of the engine, or a thread that
                          waits for an operation, went to sleep until something woke it */
  uint64_t requests;   /* operations that this rank asked rank 0 for by message: the first time, and when they change */
  uint64_t known;      /* operations asked for by one bit, since all ranks know them from an earlier time
                          (HOROVOD_CACHE_CAPACITY) */
  uint64_t messages;   /* of the whole engine, whatever the set: messages sent to other ranks to agree on what to do */
  uint64_t message_bytes;
} hvd_counters;
#define HVD_COUNTERS_INIT {sizeof(hvd_counters), 1, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0}
/* HVD_NOT_FOUND: this rank is not a member of such a set. */
HVD_API hvd_status hvd_counters_read(hvd_ctx* ctx, int32_t process_set, hvd_counters* out);

/* Computes a MAC of the bytes that only ranks of this job can make: HMAC-SHA-256, 32 bytes, with
 * a key derived from the job's secret. A rank compares it before it trusts data from another rank as more than
 * plain numbers, for example before it unpickles an object. `data` may be NULL if size_bytes is 0. */
#define HVD_MAC_BYTES 32
HVD_API hvd_status hvd_mac(hvd_ctx* ctx, const void* data, int64_t size_bytes, uint8_t* mac);

/* Starts a timeline: rank 0 writes what happens to each tensor from now on to the file, in the format of Horovod's
 * timeline (JSON for Perfetto and chrome://tracing). If mark_cycles is not 0, it writes its decisions too. Other
 * ranks do nothing. HOROVOD_TIMELINE starts a timeline when the job begins. Returns HVD_INVALID while a timeline
 * is being written, and another error if the file cannot be made. */
HVD_API hvd_status hvd_timeline_start(hvd_ctx* ctx, const char* path, int32_t mark_cycles);
/* Ends the timeline; the file is complete when this returns. It is not an error if no timeline is being written. */
HVD_API hvd_status hvd_timeline_stop(hvd_ctx* ctx);

/* ---- about ---- */

/* Features: what this library can use on this machine, and what the job uses. */
#define HVD_HAS_MPI 1     /* 1 if an MPI library can be loaded */
#define HVD_USES_MPI 2    /* 1 if the ranks of this job found each other through MPI, or move their data by it */
#define HVD_MPI_THREADS 3 /* 1 if MPI was initialised with MPI_THREAD_MULTIPLE */
#define HVD_HAS_CUDA 4    /* 1 if this library supports GPUs, and a CUDA driver and a GPU are here */
#define HVD_HAS_NCCL 5    /* the version of NCCL (22703 is 2.27.3) if it can be loaded */
/* the number of cores that the ranks of the job may use together. It is 0 unless all ranks are on
 * one node and share memory, and until all of them have done an operation together. */
#define HVD_NODE_CORES 6
#define HVD_HAS_CHANGED 7 /* 1: an elastic job has a newer generation, which waits for this rank to leave */
#define HVD_IS_GROWING 8  /* 1: ranks are on their way that will join an elastic job; HVD_HAS_CHANGED follows */
/* Returns 0 if the feature is absent or unknown. hvd_last_error() then says why. */
HVD_API int32_t hvd_feature(hvd_ctx* ctx, int32_t feature);

/* The text is never NULL, and is valid until this thread's next failing call. */
HVD_API const char* hvd_last_error(void);
/* Returns the HVD_ABI_VERSION of the loaded library. */
HVD_API int32_t hvd_abi_version(void);
/* Returns the version as text, for example "0.1.0"; never NULL. */
HVD_API const char* hvd_version(void);

#ifdef __cplusplus
}
#endif
#endif /* HVD_HVD_H_ */
