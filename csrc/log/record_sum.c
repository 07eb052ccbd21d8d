/* Reading records whose bytes have not changed; see record_sum.h. */
#include "record_sum.h"

const struct ftrma_record *ftrma_log_next_whole(struct ftrma_reader *reader)
{
    const struct ftrma_record *r = ftrma_log_next(reader);
    if (r && r->sum != ftrma_record_sum(r, ftrma_payload_sum((const char *)(r + 1), r->bytes))) {
        reader->damaged = 1;
        return NULL;
    }
    return r;
}
