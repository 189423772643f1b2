// Server-sent events out of bytes, as the WHATWG standard reads them. Bytes may be cut anywhere: within a character, within a line break.

/** @typedef {{ id?: string, event: string, data: string, retry?: number, hasData: boolean }} SseBlock */

export class SseParser {
    #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    #rest = '';
    #first = true;
    #afterCr = false;
    /** @type {{ id?: string, event: string, data: string[], retry?: number, any: boolean }} */
    #block = { event: '', data: [], any: false };

    /**
     * The blocks that these bytes complete, in order. Those without data (a place, a `retry`) are given too.
     * @param {Uint8Array} bytes
     * @returns {SseBlock[]}
     */
    push(bytes) {
        let text = this.#decoder.decode(bytes, { stream: true });
        /** @type {SseBlock[]} */
        const blocks = [];
        if (text === '') return blocks;
        if (this.#first) {
            this.#first = false;
            if (text.startsWith('\uFEFF')) text = text.slice(1);
        }
        if (this.#afterCr && text.startsWith('\n')) text = text.slice(1);
        if (text !== '') this.#afterCr = false;
        // Only what is new is searched: one byte at a time must not cost the square of a line's length.
        let begin = 0;
        for (const match of text.matchAll(/\r\n|\r|\n/g)) {
            this.#line(this.#rest + text.slice(begin, match.index), blocks);
            this.#rest = '';
            begin = match.index + match[0].length;
            this.#afterCr = match[0] === '\r' && begin === text.length;
        }
        this.#rest += text.slice(begin);
        return blocks;
    }

    /**
     * @param {string} line
     * @param {SseBlock[]} blocks
     */
    #line(line, blocks) {
        const block = this.#block;
        if (line === '') {
            if (block.any) {
                /** @type {SseBlock} */
                const whole = { event: block.event || 'message', data: block.data.join('\n'), hasData: block.data.length > 0 };
                if (block.id !== undefined) whole.id = block.id;
                if (block.retry !== undefined) whole.retry = block.retry;
                blocks.push(whole);
            }
            this.#block = { event: '', data: [], any: false };
            return;
        }
        if (line.startsWith(':')) return;
        const colon = line.indexOf(':');
        const field = colon < 0 ? line : line.slice(0, colon);
        let value = colon < 0 ? '' : line.slice(colon + 1);
        if (value.startsWith(' ')) value = value.slice(1);
        if (field === 'data') block.data.push(value);
        else if (field === 'event') block.event = value;
        else if (field === 'id' && !value.includes('\0')) block.id = value;
        else if (field === 'retry' && /^\d+$/.test(value)) block.retry = Number(value);
        else return;
        block.any = true;
    }
}
