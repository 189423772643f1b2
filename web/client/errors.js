// What goes wrong, as one class.

/**
 * What somebody between us and a gateway answers is about the way and not about what was asked for (a hotel's sign-in page, a proxy whose
 * gateways are just being moved): it ends when the way is open again. These are about the request itself.
 */
const ABOUT_THE_REQUEST = [400, 401, 405, 411, 413, 414, 415, 431];

export class SeqlineError extends Error {
    /**
     * @param {number} status HTTP status; 0 when nothing was answered
     * @param {string} code one of the contract's, or `network`, `timeout`, `closed`, `answer`
     * @param {string} message for people
     * @param {{ retryAfter?: number | null, fields?: string[], cause?: unknown }} [more] `retryAfter` in seconds
     */
    constructor(status, code, message, more = {}) {
        super(message, more.cause === undefined ? undefined : { cause: more.cause });
        this.name = 'SeqlineError';
        this.status = status;
        this.code = code;
        this.retryAfter = more.retryAfter ?? null;
        this.fields = more.fields ?? [];
    }

    /** Whether the same request may be answered another time. */
    get temporary() {
        if (this.status === 0) return this.code !== 'closed';
        if (this.status >= 500 || [408, 425, 429].includes(this.status)) return true;
        return this.code === 'answer' && !ABOUT_THE_REQUEST.includes(this.status);
    }
}

/**
 * Whatever was thrown, as a SeqlineError. An abort stays what it is.
 * @param {unknown} error
 */
export function asSeqlineError(error) {
    if (error instanceof SeqlineError) return error;
    const text = error instanceof Error ? error.message : String(error);
    return new SeqlineError(0, 'network', text, { cause: error });
}
