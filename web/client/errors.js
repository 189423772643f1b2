// What goes wrong, as one class.

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
        return this.status === 0 ? this.code !== 'closed' : this.status >= 500 || this.status === 429 || this.status === 408;
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
