// Made from the sources by tests/make_types.js; a test compares them.
/**
 * A signal that aborts with the first of these. `free` lets go of them; whoever made it calls that when the work is over.
 * @param {(AbortSignal | undefined | null)[]} signals
 * @returns {{ signal: AbortSignal, free: () => void }}
 */
declare function joined(...signals: (AbortSignal | undefined | null)[]): {
    signal: AbortSignal;
    free: () => void;
};
/**
 * What a promise gives, or the signal's reason when that aborts first: for work that does not listen to signals itself.
 * @template T
 * @param {Promise<T>} work
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<T>}
 */
declare function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T>;
/**
 * Waits; rejects with the signal's reason when that aborts. Leaves no timer behind.
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
declare function sleep(ms: number, signal?: AbortSignal): Promise<void>;
declare class Backoff {
    /**
     * @param {{ baseMs?: number, capMs?: number, random?: () => number }} [options]
     */
    constructor({ baseMs, capMs, random }?: {
        baseMs?: number;
        capMs?: number;
        random?: () => number;
    });
    baseMs: number;
    capMs: number;
    random: () => number;
    attempt: number;
    /**
     * The next wait in milliseconds.
     * @param {{ atLeastMs?: number }} [floor] what the server asked for; it is waited out, and the jitter comes on top
     */
    next({ atLeastMs }?: {
        atLeastMs?: number;
    }): number;
    reset(): void;
}
/**
 * A wait that can be cut short, without an error.
 */
declare class Pause {
    /**
     * @param {number} ms
     * @param {AbortSignal} signal
     */
    wait(ms: number, signal: AbortSignal): Promise<void>;
    /** Ends the wait that is going on, if one is. */
    wake(): void;
    #private;
}
/**
 * Whatever was thrown, as a SeqlineError. An abort stays what it is.
 * @param {unknown} error
 */
declare function asSeqlineError(error: unknown): SeqlineError;
declare class SeqlineError extends Error {
    /**
     * @param {number} status HTTP status; 0 when nothing was answered
     * @param {string} code one of the contract's, or `network`, `timeout`, `closed`, `answer`
     * @param {string} message for people
     * @param {{ retryAfter?: number | null, fields?: string[], cause?: unknown }} [more] `retryAfter` in seconds
     */
    constructor(status: number, code: string, message: string, more?: {
        retryAfter?: number | null;
        fields?: string[];
        cause?: unknown;
    });
    status: number;
    code: string;
    retryAfter: number | null;
    fields: string[];
    /** Whether the same request may be answered another time. */
    get temporary(): boolean;
}
type MessageKind = "text" | "image" | "share" | "system";
type Profile = {
    user_id: string;
    name?: string | null;
    avatar_url?: string | null;
    updated_at?: string | null;
};
type MediaItem = {
    id: string;
    position: number;
    mime_type: string;
    size: number;
    width: number;
    height: number;
};
type Media = {
    id: string;
    mime_type: string;
    size: number;
    width: number;
    height: number;
};
type Reaction = {
    emoji: string;
    count: number;
    me?: boolean | null;
};
type ShareReference = {
    type: string;
    id: string;
};
type Share = {
    type: string;
    id: string;
    title?: string | null;
    url?: string | null;
    image_url?: string | null;
    deleted: boolean;
};
type SeenQuote = {
    seq: number;
    id: string;
    sender: string;
    kind: MessageKind;
    preview: string;
    deleted: boolean;
};
type HiddenQuote = {
    seq: number;
    hidden: true;
};
type Quote = SeenQuote | HiddenQuote;
type Message = {
    id: string;
    conversation_id: string;
    seq: number;
    rev: number;
    sender: string;
    client_id?: string | null | undefined;
    kind: MessageKind;
    body: string;
    media: MediaItem[];
    reply_to?: Quote | null | undefined;
    share?: Share | null | undefined;
    mentions: string[];
    reactions: Reaction[];
    data?: any;
    client_sent_at?: string | null | undefined;
    created_at: string;
    edited_at?: string | null | undefined;
    deleted_at?: string | null | undefined;
    deleted_by?: string | null | undefined;
};
/**
 * one's own part of a conversation
 */
type Me = {
    role: "owner" | "member";
    joined_at: string;
    read_seq: number;
    read_at?: string | null | undefined;
    unread: number;
    unread_more: boolean;
    unread_mentions: number;
    muted: boolean;
    pinned: boolean;
    hidden: boolean;
    marked_unread: boolean;
    cleared_to: number;
    blocked: boolean;
};
type ConversationInfo = {
    id: string;
    kind: "single" | "group" | "system";
    title?: string | null | undefined;
    owner?: string | null | undefined;
    peer?: string | undefined;
    peer_profile?: {
        name?: string | null;
        avatar_url?: string | null;
    } | null | undefined;
    display_name?: string | null | undefined;
    history?: "all" | "from_join" | null | undefined;
    member_count: number;
    head_seq: number;
    rev: number;
    created_at: string;
    updated_at: string;
    last_message?: Message | null | undefined;
    me?: Me | null | undefined;
};
type ConversationPage = {
    items: ConversationInfo[];
    next_cursor?: string | null;
    events_head: string;
};
type Member = {
    user_id: string;
    role: "owner" | "member";
    joined_at: string;
    name?: string | null;
    avatar_url?: string | null;
};
type MemberPage = {
    items: Member[];
    next_cursor?: string | null;
};
/**
 * both included
 */
type SeqRange = [from: number, to: number];
type MessagePage = {
    items: Message[];
    has_more_before: boolean;
    has_more_after: boolean;
    head_seq: number;
    voids: SeqRange[];
};
type ChangesPage = {
    items: Message[];
    next_rev: number;
    has_more: boolean;
    head_seq: number;
    voids: SeqRange[];
};
type KeyState = {
    state: "accepted" | "archived" | "unknown";
    message?: Message | null;
};
type ReactionsOfMessage = {
    seq: number;
    rev: number;
    reactions: Reaction[];
};
type ReaderList = {
    count: number;
    items: {
        user_id: string;
        read_at: string;
    }[];
};
type ReadPosition = {
    read_seq: number;
    read_at?: string | null;
    unread: number;
    unread_more: boolean;
};
type UnreadTotals = {
    total: number;
    conversations: number;
    more: boolean;
    muted: {
        total: number;
        conversations: number;
    };
};
type CreateConversation = {
    kind: "single";
    peer: string;
} | {
    kind: "group";
    title?: string;
    members: string[];
    history?: "all" | "from_join";
} | {
    kind: "system";
    key: string;
    members: string[];
    title?: string;
};
type SendMessage = {
    client_id?: string | undefined;
    kind?: MessageKind | undefined;
    body?: string | undefined;
    media?: string[] | undefined;
    reply_to?: number | undefined;
    share?: ShareReference | undefined;
    mentions?: string[] | undefined;
    client_sent_at?: string | undefined;
    peer?: string | undefined;
    sender?: string | undefined;
};
type PutPreferences = {
    muted?: boolean;
    pinned?: boolean;
    hidden?: boolean;
    marked_unread?: boolean;
    cleared_to?: number;
};
type PreferencesData = {
    muted: boolean;
    pinned: boolean;
    hidden: boolean;
    marked_unread: boolean;
    cleared_to: number;
    blocked?: boolean;
};
type Block = {
    user_id: string;
    created_at: string;
};
type BlockPage = {
    items: Block[];
    next_cursor?: string | null;
};
type SearchPage = {
    items: Message[];
    next_cursor?: string | null;
};
type Resync = {
    reason: "trimmed" | "future" | "lost";
    head: string;
    spread_ms: number;
};
type PollAnswer = {
    events: ChatEvent[];
    next: string;
    resync?: Resync | null;
};
type Ticket = {
    ticket: string;
    expires_in: number;
};
type Hello = {
    device?: string | null;
    resumed_from?: string | null;
    head: string;
    server_time: string;
};
type PushSubscriptionBody = {
    endpoint: string;
    keys: {
        p256dh: string;
        auth: string;
    };
    show_preview?: boolean;
};
type ReadPlace = {
    user_id: string;
    read_seq: number;
    read_at: string;
};
type MemberData = {
    user_id: string;
    by: string;
    seq: number;
};
type EventOf<T, D> = {
    id?: string;
    type: T;
    version: number;
    occurred_at: string;
    conversation_id: string;
    rev: number;
    data: D;
};
type ChatEvent = EventOf<"conversation.created", {
    conversation: ConversationInfo;
}> | EventOf<"conversation.imported", {
    imported: number;
    first_seq?: number | null;
    last_seq?: number | null;
    head_seq: number;
}> | EventOf<"conversation.renamed", {
    title: string;
    by: string;
    seq: number;
}> | EventOf<"conversation.dissolved", {
    by: string;
    seq: number;
}> | EventOf<"member.joined", MemberData> | EventOf<"member.left", MemberData> | EventOf<"member.removed", MemberData> | EventOf<"owner.changed", {
    owner: string;
    by: string;
    seq: number;
}> | EventOf<"message.created", {
    message: Message;
}> | EventOf<"message.edited", {
    message: Message;
}> | EventOf<"message.deleted", {
    message: Message;
}> | EventOf<"message.resequenced", {
    old_seq: number;
    message: Message;
}> | EventOf<"reaction.changed", {
    seq: number;
    reactions: Reaction[];
}> | EventOf<"read.advanced", ReadPlace & {
    positions?: ReadPlace[];
}> | EventOf<"preferences.changed", PreferencesData> | EventOf<"typing.updated", {
    user_id: string;
    typing: boolean;
}>;
/** @typedef {import('./shapes.js').Message} Message */
/** @typedef {import('./shapes.js').MessagePage} MessagePage */
/** @typedef {{ from: number, to: number, loading: boolean }} Gap both included */
/**
 * In events reactions do not say whether one is among them; what was known stays.
 * @param {import('./shapes.js').Reaction[]} reactions
 * @param {import('./shapes.js').Reaction[]} [before]
 */
declare function withMine(reactions: Reaction[], before?: Reaction[]): {
    me: boolean;
    emoji: string;
    count: number;
}[];
declare class Timeline {
    /** In order, apart from each other, within the window. @type {Gap[]} */
    gaps: Gap[];
    from: number;
    to: number;
    head: number;
    loaded: boolean;
    hasOlder: boolean;
    atEnd: boolean;
    get hasNewer(): boolean;
    /** @param {number} seq */
    get(seq: number): Message | undefined;
    /** In ascending seq. */
    get messages(): Message[];
    /**
     * Begins anew with a page.
     * @param {MessagePage} page
     */
    reset(page: MessagePage): void;
    /**
     * @param {MessagePage} page what was asked with `before` = the window's begin
     * @param {number} before
     */
    addOlder(page: MessagePage, before: number): void;
    /**
     * @param {MessagePage} page what was asked with `after` = the window's end
     * @param {number} after
     */
    addNewer(page: MessagePage, after: number): void;
    /**
     * @param {MessagePage} page what was asked with this `after`; it answers for every seq from there to its last, or to the head
     * @param {number} after
     */
    fill(page: MessagePage, after: number): void;
    /**
     * The conversation goes to this seq at least: a window at the end goes there too, with a gap for what is missing.
     * @param {number} head
     */
    reach(head: number): void;
    /**
     * A message as it is now. Older than what is held, or outside of the window: nothing.
     * @param {Message} message
     * @returns {boolean} whether anything changed
     */
    apply(message: Message): boolean;
    /**
     * A message got another seq; what stands at the old one comes by itself, or is asked for.
     * @param {number} oldSeq
     * @param {Message} message
     */
    resequence(oldSeq: number, message: Message): void;
    /**
     * @param {number} seq
     * @param {number} rev
     * @param {import('./shapes.js').Reaction[]} reactions
     */
    react(seq: number, rev: number, reactions: Reaction[]): boolean;
    /**
     * Seqs that will never hold a message.
     * @param {import('./shapes.js').SeqRange[]} voids
     */
    skip(voids: SeqRange[]): void;
    /**
     * Nothing up to this seq is there any more.
     * @param {number} seq
     */
    clearTo(seq: number): void;
    /** Everything in it is asked for again: it lies too far back for what changed to be told. */
    forget(): void;
    #private;
}
/**
 * both included
 */
type Gap = {
    from: number;
    to: number;
    loading: boolean;
};
/**
 * Work that is tried until it is done or refused for good.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} work
 * @param {AbortSignal} signal
 * @param {{ refused?: (error: unknown) => void }} [how] `refused`: for what a gateway refuses nobody. Whoever refused it is told of here, and asked again
 * @returns {Promise<T>}
 */
declare function insist<T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal, { refused }?: {
    refused?: (error: unknown) => void;
}): Promise<T>;
declare class GapFiller {
    /**
     * @param {import('./timeline.js').Timeline} timeline
     * @param {{ read: (query: { after: number, limit: number }, signal: AbortSignal) => Promise<import('./shapes.js').MessagePage>, onChange: () => void, signal: AbortSignal }} options
     */
    constructor(timeline: Timeline, { read, onChange, signal }: {
        read: (query: {
            after: number;
            limit: number;
        }, signal: AbortSignal) => Promise<MessagePage>;
        onChange: () => void;
        signal: AbortSignal;
    });
    timeline: Timeline;
    read: (query: {
        after: number;
        limit: number;
    }, signal: AbortSignal) => Promise<MessagePage>;
    onChange: () => void;
    signal: AbortSignal;
    /** Looks after the gaps that there are. */
    look(): void;
    #private;
}
/** @typedef {keyof typeof ROUTES} RouteName */
/** @typedef {keyof typeof ERROR_CODES} ErrorCode */
/** @typedef {{ limit?: number, cursor?: string }} Paging */
/** @typedef {{ id: string }} Id */
/** @typedef {{ id: string, seq: number }} IdSeq */
/**
 * Of every route that answers JSON: what it takes and what it gives.
 * @typedef {object} RouteTypes
 * @property {{ body: S.CreateConversation, headers?: { 'Idempotency-Key'?: string }, gives: S.ConversationInfo }} createConversation
 * @property {{ query?: Paging & { q?: string, hidden?: boolean }, gives: S.ConversationPage }} getConversations
 * @property {{ path: Id, gives: S.ConversationInfo }} getConversation
 * @property {{ path: Id, body: { title?: string }, gives: S.ConversationInfo }} patchConversation
 * @property {{ path: Id, query?: Paging, gives: S.MemberPage }} getMembers
 * @property {{ path: { id: string, user_id: string }, gives: S.Member }} putMember
 * @property {{ path: { id: string, user_id: string }, gives: void }} deleteMember
 * @property {{ path: Id, body: S.PutPreferences, gives: S.ConversationInfo }} putPreferences
 * @property {{ gives: S.UnreadTotals }} getUnread
 * @property {{ path: { user_id: string }, gives: S.Block }} putBlock
 * @property {{ path: { user_id: string }, gives: void }} deleteBlock
 * @property {{ query?: Paging, gives: S.BlockPage }} getBlocks
 * @property {{ query: Paging & { q: string, conversation?: string }, gives: S.SearchPage }} getSearch
 * @property {{ path: Id, body: S.SendMessage, query?: { ack?: 'accepted' | 'replicated' | 'archived' }, gives: S.Message }} send
 * @property {{ path: Id, query?: { before?: number, after?: number, around?: number, since_rev?: number, limit?: number }, gives: any }} getMessages
 * @property {{ path: IdSeq, gives: S.Message }} getMessage
 * @property {{ path: IdSeq, body: { body?: string, media?: string[] }, gives: S.Message }} patchMessage
 * @property {{ path: IdSeq, gives: S.Message }} deleteMessage
 * @property {{ path: IdSeq & { emoji: string }, gives: S.ReactionsOfMessage }} putReaction
 * @property {{ path: IdSeq & { emoji: string }, gives: S.ReactionsOfMessage }} deleteReaction
 * @property {{ path: IdSeq, gives: S.ReaderList }} getReaders
 * @property {{ path: { id: string, client_id: string }, query?: { sender?: string }, gives: S.KeyState }} getByClientId
 * @property {{ path: Id, body: { seq: number }, gives: S.ReadPosition }} postRead
 * @property {{ path: Id, body: { typing: boolean }, gives: void }} postTyping
 * @property {{ path: Id, gives: any }} getAudit
 * @property {{ path: IdSeq, gives: { items: { rev: number, at: string, body: string, media: string[] }[] } }} getVersions
 * @property {{ query?: { after?: string, limit?: number, wait?: number, device?: string }, gives: S.PollAnswer }} pollEvents
 * @property {{ body: { device: string, id: string }, gives: void }} ackEvents
 * @property {{ gives: S.Ticket }} makeTicket
 * @property {{ gives: { key: string } }} getPushKey
 * @property {{ body: S.PushSubscriptionBody, gives: any }} putPushSubscription
 * @property {{ body: { endpoint: string }, gives: void }} deletePushSubscription
 * @property {{ path: { user_id: string }, body: { name?: string, avatar_url?: string }, gives: S.Profile }} putUser
 * @property {{ path: { user_id: string }, gives: S.Profile }} getUser
 * @property {{ path: { user_id: string }, gives: any }} deleteUser
 * @property {{ body: any, gives: any }} postImport
 * @property {{ path: { type: string, id: string }, body: { title: string, url: string, image_url?: string }, gives: S.Share }} putShare
 * @property {{ path: { type: string, id: string }, gives: void }} deleteShare
 * @property {{ gives: any }} getOpenapi
 */
/** @typedef {{ path?: Record<string, string | number>, query?: Record<string, any>, body?: any, headers?: Record<string, string>, signal?: AbortSignal, deadlineMs?: number }} CallArgs */
/**
 * One method a route. Streams, exports and bytes have doors of their own.
 * @typedef {{ [K in keyof RouteTypes]: (args: Omit<RouteTypes[K], 'gives'> & { signal?: AbortSignal, deadlineMs?: number }) => Promise<RouteTypes[K]['gives']> }} Api
 */
/**
 * The path of a route with its places filled in, percent-encoded.
 * @param {string} template
 * @param {Record<string, string | number>} [path]
 */
declare function fillPath(template: string, path?: Record<string, string | number>): string;
/**
 * The contract bound to something that makes requests.
 * @param {(method: string, path: string, args: CallArgs) => Promise<any>} request
 * @returns {Api}
 */
declare function bindApi(request: (method: string, path: string, args: CallArgs) => Promise<any>): Api;
declare namespace ROUTES {
    let createConversation: readonly ["POST", "/v1/conversations"];
    let getConversations: readonly ["GET", "/v1/conversations"];
    let getConversation: readonly ["GET", "/v1/conversations/{id}"];
    let patchConversation: readonly ["PATCH", "/v1/conversations/{id}"];
    let getMembers: readonly ["GET", "/v1/conversations/{id}/members"];
    let putMember: readonly ["PUT", "/v1/conversations/{id}/members/{user_id}"];
    let deleteMember: readonly ["DELETE", "/v1/conversations/{id}/members/{user_id}"];
    let putPreferences: readonly ["PUT", "/v1/conversations/{id}/preferences"];
    let getUnread: readonly ["GET", "/v1/unread"];
    let putBlock: readonly ["PUT", "/v1/blocks/{user_id}"];
    let deleteBlock: readonly ["DELETE", "/v1/blocks/{user_id}"];
    let getBlocks: readonly ["GET", "/v1/blocks"];
    let getSearch: readonly ["GET", "/v1/search"];
    let send: readonly ["POST", "/v1/conversations/{id}/messages"];
    let getMessages: readonly ["GET", "/v1/conversations/{id}/messages"];
    let getMessage: readonly ["GET", "/v1/conversations/{id}/messages/{seq}"];
    let patchMessage: readonly ["PATCH", "/v1/conversations/{id}/messages/{seq}"];
    let deleteMessage: readonly ["DELETE", "/v1/conversations/{id}/messages/{seq}"];
    let putReaction: readonly ["PUT", "/v1/conversations/{id}/messages/{seq}/reactions/{emoji}"];
    let deleteReaction: readonly ["DELETE", "/v1/conversations/{id}/messages/{seq}/reactions/{emoji}"];
    let getReaders: readonly ["GET", "/v1/conversations/{id}/messages/{seq}/readers"];
    let getByClientId: readonly ["GET", "/v1/conversations/{id}/messages/by-client-id/{client_id}"];
    let postRead: readonly ["POST", "/v1/conversations/{id}/read"];
    let postTyping: readonly ["POST", "/v1/conversations/{id}/typing"];
    let getAudit: readonly ["GET", "/v1/audit/conversations/{id}"];
    let getVersions: readonly ["GET", "/v1/audit/conversations/{id}/messages/{seq}/versions"];
    let getEvents: readonly ["GET", "/v1/events"];
    let pollEvents: readonly ["GET", "/v1/events/poll"];
    let ackEvents: readonly ["POST", "/v1/events/ack"];
    let makeTicket: readonly ["POST", "/v1/events/ticket"];
    let postMedia: readonly ["POST", "/v1/media"];
    let getMedia: readonly ["GET", "/v1/media/{id}"];
    let getPushKey: readonly ["GET", "/v1/push/key"];
    let putPushSubscription: readonly ["PUT", "/v1/push/subscriptions"];
    let deletePushSubscription: readonly ["DELETE", "/v1/push/subscriptions"];
    let putUser: readonly ["PUT", "/v1/users/{user_id}"];
    let getUser: readonly ["GET", "/v1/users/{user_id}"];
    let deleteUser: readonly ["DELETE", "/v1/users/{user_id}"];
    let postImport: readonly ["POST", "/v1/import"];
    let getExport: readonly ["GET", "/v1/export/conversations/{id}"];
    let putShare: readonly ["PUT", "/v1/shared/{type}/{id}"];
    let deleteShare: readonly ["DELETE", "/v1/shared/{type}/{id}"];
    let getOpenapi: readonly ["GET", "/openapi.json"];
}
/** Kept in the log, with an id. */
declare const LOGGED_EVENTS: readonly ["conversation.created", "conversation.imported", "conversation.renamed", "conversation.dissolved", "member.joined", "member.left", "member.removed", "owner.changed", "message.created", "message.edited", "message.deleted", "message.resequenced", "reaction.changed", "read.advanced", "preferences.changed"];
/** About conversations, but live only. */
declare const LIVE_EVENTS: readonly ["typing.updated"];
/** What a stream says about itself. */
declare const STREAM_EVENTS: readonly ["hello", "resync", "unavailable", "token_expired", "goodbye"];
declare namespace ERROR_CODES {
    let malformed_json: 400;
    let invalid_cursor: 400;
    let invalid_parameter: 400;
    let unauthenticated: 401;
    let token_expired: 401;
    let forbidden: 403;
    let read_only: 403;
    let not_found: 404;
    let method_not_allowed: 405;
    let not_acceptable: 406;
    let idempotency_conflict: 409;
    let deleted: 409;
    let dissolved: 410;
    let too_large: 413;
    let unsupported_media_type: 415;
    let invalid_field: 422;
    let unknown_field: 422;
    let rate_limited: 429;
    let unavailable: 503;
    let overloaded: 503;
}
type RouteName = keyof typeof ROUTES;
type ErrorCode = keyof typeof ERROR_CODES;
type Paging = {
    limit?: number;
    cursor?: string;
};
type Id = {
    id: string;
};
type IdSeq = {
    id: string;
    seq: number;
};
/**
 * Of every route that answers JSON: what it takes and what it gives.
 */
type RouteTypes = {
    createConversation: {
        body: S.CreateConversation;
        headers?: {
            "Idempotency-Key"?: string;
        };
        gives: S.ConversationInfo;
    };
    getConversations: {
        query?: Paging & {
            q?: string;
            hidden?: boolean;
        };
        gives: S.ConversationPage;
    };
    getConversation: {
        path: Id;
        gives: S.ConversationInfo;
    };
    patchConversation: {
        path: Id;
        body: {
            title?: string;
        };
        gives: S.ConversationInfo;
    };
    getMembers: {
        path: Id;
        query?: Paging;
        gives: S.MemberPage;
    };
    putMember: {
        path: {
            id: string;
            user_id: string;
        };
        gives: S.Member;
    };
    deleteMember: {
        path: {
            id: string;
            user_id: string;
        };
        gives: void;
    };
    putPreferences: {
        path: Id;
        body: S.PutPreferences;
        gives: S.ConversationInfo;
    };
    getUnread: {
        gives: S.UnreadTotals;
    };
    putBlock: {
        path: {
            user_id: string;
        };
        gives: S.Block;
    };
    deleteBlock: {
        path: {
            user_id: string;
        };
        gives: void;
    };
    getBlocks: {
        query?: Paging;
        gives: S.BlockPage;
    };
    getSearch: {
        query: Paging & {
            q: string;
            conversation?: string;
        };
        gives: S.SearchPage;
    };
    send: {
        path: Id;
        body: S.SendMessage;
        query?: {
            ack?: "accepted" | "replicated" | "archived";
        };
        gives: S.Message;
    };
    getMessages: {
        path: Id;
        query?: {
            before?: number;
            after?: number;
            around?: number;
            since_rev?: number;
            limit?: number;
        };
        gives: any;
    };
    getMessage: {
        path: IdSeq;
        gives: S.Message;
    };
    patchMessage: {
        path: IdSeq;
        body: {
            body?: string;
            media?: string[];
        };
        gives: S.Message;
    };
    deleteMessage: {
        path: IdSeq;
        gives: S.Message;
    };
    putReaction: {
        path: IdSeq & {
            emoji: string;
        };
        gives: S.ReactionsOfMessage;
    };
    deleteReaction: {
        path: IdSeq & {
            emoji: string;
        };
        gives: S.ReactionsOfMessage;
    };
    getReaders: {
        path: IdSeq;
        gives: S.ReaderList;
    };
    getByClientId: {
        path: {
            id: string;
            client_id: string;
        };
        query?: {
            sender?: string;
        };
        gives: S.KeyState;
    };
    postRead: {
        path: Id;
        body: {
            seq: number;
        };
        gives: S.ReadPosition;
    };
    postTyping: {
        path: Id;
        body: {
            typing: boolean;
        };
        gives: void;
    };
    getAudit: {
        path: Id;
        gives: any;
    };
    getVersions: {
        path: IdSeq;
        gives: {
            items: {
                rev: number;
                at: string;
                body: string;
                media: string[];
            }[];
        };
    };
    pollEvents: {
        query?: {
            after?: string;
            limit?: number;
            wait?: number;
            device?: string;
        };
        gives: S.PollAnswer;
    };
    ackEvents: {
        body: {
            device: string;
            id: string;
        };
        gives: void;
    };
    makeTicket: {
        gives: S.Ticket;
    };
    getPushKey: {
        gives: {
            key: string;
        };
    };
    putPushSubscription: {
        body: S.PushSubscriptionBody;
        gives: any;
    };
    deletePushSubscription: {
        body: {
            endpoint: string;
        };
        gives: void;
    };
    putUser: {
        path: {
            user_id: string;
        };
        body: {
            name?: string;
            avatar_url?: string;
        };
        gives: S.Profile;
    };
    getUser: {
        path: {
            user_id: string;
        };
        gives: S.Profile;
    };
    deleteUser: {
        path: {
            user_id: string;
        };
        gives: any;
    };
    postImport: {
        body: any;
        gives: any;
    };
    putShare: {
        path: {
            type: string;
            id: string;
        };
        body: {
            title: string;
            url: string;
            image_url?: string;
        };
        gives: S.Share;
    };
    deleteShare: {
        path: {
            type: string;
            id: string;
        };
        gives: void;
    };
    getOpenapi: {
        gives: any;
    };
};
type CallArgs = {
    path?: Record<string, string | number>;
    query?: Record<string, any>;
    body?: any;
    headers?: Record<string, string>;
    signal?: AbortSignal;
    deadlineMs?: number;
};
/**
 * One method a route. Streams, exports and bytes have doors of their own.
 */
type Api = { [K in keyof RouteTypes]: (args: Omit<RouteTypes[K], "gives"> & {
    signal?: AbortSignal;
    deadlineMs?: number;
}) => Promise<RouteTypes[K]["gives"]>; };
declare class BadgeCount {
    /**
     * @param {{ api: import('./contract.js').Api, signal: AbortSignal, onChange: () => void }} options
     */
    constructor({ api, signal, onChange }: {
        api: Api;
        signal: AbortSignal;
        onChange: () => void;
    });
    /** @type {Badge} */
    value: Badge;
    api: Api;
    signal: AbortSignal;
    onChange: () => void;
    /**
     * @param {import('./shapes.js').ConversationInfo | null} before
     * @param {import('./shapes.js').ConversationInfo | null} after
     */
    changed(before: ConversationInfo | null, after: ConversationInfo | null): void;
    /** Asks the server soon. */
    ask(afterMs?: number): void;
    #private;
}
type Badge = {
    unread: number;
    conversations: number;
};
/**
 * A new UUIDv7.
 * @param {number} [now] milliseconds since 1970
 */
declare function uuidv7(now?: number): string;
/**
 * @typedef {object} Store
 * @property {boolean} shared whether other tabs see the same
 * @property {(key: string) => Promise<any>} get undefined when it is not there
 * @property {(key: string, value: any) => Promise<void>} set resolves when it will survive
 * @property {(key: string) => Promise<void>} delete
 * @property {(prefix: string) => Promise<[string, any][]>} entries those whose key begins so, in the order of their keys
 * @property {() => void} [close]
 */
/**
 * Lives as long as the process.
 * @returns {Store}
 */
declare function memoryStore(): Store;
/**
 * @param {string} [name] of the database
 * @returns {Store}
 */
declare function indexedDbStore(name?: string): Store;
/**
 * A store that goes on in memory with what another does not take or give (private windows, a full disk, a database that never answers),
 * and goes back to it when it does again.
 * @param {Store} first
 * @param {{ onFailure?: () => void, withinMs?: number }} [options]
 * @returns {Store}
 */
declare function withFallback(first: Store, { onFailure, withinMs }?: {
    onFailure?: () => void;
    withinMs?: number;
}): Store;
/**
 * What serves best here.
 * @param {{ onFailure?: () => void }} [options]
 */
declare function defaultStore(options?: {
    onFailure?: () => void;
}): Store;
type Store = {
    /**
     * whether other tabs see the same
     */
    shared: boolean;
    /**
     * undefined when it is not there
     */
    get: (key: string) => Promise<any>;
    /**
     * resolves when it will survive
     */
    set: (key: string, value: any) => Promise<void>;
    delete: (key: string) => Promise<void>;
    /**
     * those whose key begins so, in the order of their keys
     */
    entries: (prefix: string) => Promise<[string, any][]>;
    close?: (() => void) | undefined;
};
/** @typedef {{ body?: string, kind?: import('./shapes.js').MessageKind, media?: string[], reply_to?: number, share?: import('./shapes.js').ShareReference, mentions?: string[], peer?: string }} Draft */
/**
 * @typedef {object} OutboxItem
 * @property {string} clientId
 * @property {string} conversationId
 * @property {Draft} draft
 * @property {'waiting' | 'sending' | 'failed'} state
 * @property {{ status: number, code: string, message: string } | null} error why it failed, or why it still waits
 * @property {string} at when it was written, RFC 3339
 * @property {number} order place in its line
 */
/**
 * @param {import('./conversation.js').Words} words
 * @returns {Draft}
 */
declare function draftOf({ body, kind, media, replyTo, share, mentions, peer }: Words): Draft;
declare class Outbox {
    /**
     * @param {object} options
     * @param {import('./store.js').Store} options.store
     * @param {(conversationId: string, body: import('./shapes.js').SendMessage, signal: AbortSignal) => Promise<import('./shapes.js').Message>} options.send
     * @param {(message: import('./shapes.js').Message) => void} options.onSent
     * @param {(conversationId: string) => void} options.onChange
     * @param {(word: 'changed') => void} [options.tell] other tabs
     * @param {() => number} [options.random]
     */
    constructor({ store, send, onSent, onChange, tell, random }: {
        store: Store;
        send: (conversationId: string, body: SendMessage, signal: AbortSignal) => Promise<Message>;
        onSent: (message: Message) => void;
        onChange: (conversationId: string) => void;
        tell?: ((word: "changed") => void) | undefined;
        random?: (() => number) | undefined;
    });
    prefix: string;
    store: Store;
    send: (conversationId: string, body: SendMessage, signal: AbortSignal) => Promise<Message>;
    onSent: (message: Message) => void;
    onChange: (conversationId: string) => void;
    tell: (word: "changed") => void;
    random: () => number;
    /**
     * What waits in a conversation, in the order of writing.
     * @param {string} [conversationId] all of them when absent
     */
    items(conversationId?: string): OutboxItem[];
    /**
     * @param {string} prefix of the keys in the store: whose messages these are
     */
    begin(prefix: string): void;
    /** Reads what was written down, by this page or another. */
    load(): Promise<void>;
    /**
     * @param {string} conversationId
     * @param {Draft} draft
     * @returns {string} its key; it is on the screen at once and sent once it is written down
     */
    add(conversationId: string, draft: Draft): string;
    /**
     * Once more, with the same key.
     * @param {string} clientId
     */
    retry(clientId: string): void;
    /**
     * Thrown away. If a try is under way it may still arrive; then it shows as what it is, a message.
     * @param {string} clientId
     */
    discard(clientId: string): void;
    /**
     * The server has this one: from an answer, an event or a page, whichever comes first.
     * @param {string | null | undefined} clientId
     */
    confirm(clientId: string | null | undefined): void;
    /** Tries at once what waits for its next try. */
    wake(): void;
    /** Whether this page is the one that sends. */
    get running(): boolean;
    /**
     * Sends until the signal aborts. Only one tab of a user may.
     * @param {AbortSignal} signal
     */
    run(signal: AbortSignal): Promise<void>;
    /** Resolves when all that was to be written down is. */
    settle(): Promise<void>;
    #private;
}
type Draft = {
    body?: string;
    kind?: MessageKind;
    media?: string[];
    reply_to?: number;
    share?: ShareReference;
    mentions?: string[];
    peer?: string;
};
type OutboxItem = {
    clientId: string;
    conversationId: string;
    draft: Draft;
    state: "waiting" | "sending" | "failed";
    /**
     * why it failed, or why it still waits
     */
    error: {
        status: number;
        code: string;
        message: string;
    } | null;
    /**
     * when it was written, RFC 3339
     */
    at: string;
    /**
     * place in its line
     */
    order: number;
};
declare class Conversation {
    /**
     * @param {string} id
     * @param {import('./connection.js').Parts} parts
     */
    constructor(id: string, parts: Parts);
    id: string;
    parts: Parts;
    /** Its facts; undefined before they are read. */
    get info(): ConversationInfo | undefined;
    get typingUsers(): string[];
    /** How far others have read, as far as was heard since the page was opened. @returns {ReadonlyMap<string, number>} */
    get readPositions(): ReadonlyMap<string, number>;
    /** What to show, from old to new. @returns {{ entries: Entry[], loaded: boolean, hasOlder: boolean, hasNewer: boolean, detached: boolean, headSeq: number }} */
    get timeline(): {
        entries: Entry[];
        loaded: boolean;
        hasOlder: boolean;
        hasNewer: boolean;
        detached: boolean;
        headSeq: number;
    };
    /**
     * Loads the newest messages, or those around a seq. Open already: nothing, unless it is elsewhere.
     * @param {{ around?: number } & Waiting} [options]
     */
    open({ around, signal }?: {
        around?: number;
    } & Waiting): Promise<void>;
    /** @param {Waiting} [options] */
    older({ signal }?: Waiting): Promise<void>;
    /** @param {Waiting} [options] */
    newer({ signal }?: Waiting): Promise<void>;
    /**
     * Makes a seq part of the window.
     * @param {number} seq
     * @param {Waiting} [options]
     */
    jumpTo(seq: number, { signal }?: Waiting): Promise<void>;
    /** @param {Waiting} [options] */
    jumpToEnd({ signal }?: Waiting): Promise<void>;
    /**
     * @param {Words} words
     * @returns {string} the key of what was written
     */
    send(words: Words): string;
    /** @param {string} clientId */
    retry(clientId: string): void;
    /** @param {string} clientId */
    discard(clientId: string): void;
    /**
     * @param {number} seq
     * @param {{ body?: string, media?: string[] }} words
     * @param {Waiting} [options]
     */
    edit(seq: number, words: {
        body?: string;
        media?: string[];
    }, options?: Waiting): Promise<Message>;
    /**
     * Takes a message back.
     * @param {number} seq
     * @param {Waiting} [options]
     */
    recall(seq: number, options?: Waiting): Promise<Message>;
    /**
     * @param {number} seq
     * @param {string} emoji
     * @param {boolean} on
     * @param {Waiting} [options]
     */
    react(seq: number, emoji: string, on: boolean, options?: Waiting): Promise<ReactionsOfMessage>;
    /**
     * A message is in view, the lowest one if there are several. It stays in the window even when so much has changed that the window is read
     * anew. On a hidden page nothing is marked as read by this; say it again when the page is seen.
     * @param {number} seq
     */
    seen(seq: number): void;
    /** @param {boolean} [typing] */
    typing(typing?: boolean): void;
    /**
     * All members, page after page.
     * @param {Waiting} [options]
     */
    members(options?: Waiting): Promise<Member[]>;
    /**
     * @param {string[]} users
     * @param {Waiting} [options]
     */
    invite(users: string[], options?: Waiting): Promise<Member[]>;
    /**
     * @param {string} user_id
     * @param {Waiting} [options]
     */
    remove(user_id: string, options?: Waiting): Promise<void>;
    /** @param {Waiting} [options] */
    leave(options?: Waiting): Promise<void>;
    /**
     * @param {string} title
     * @param {Waiting} [options]
     */
    rename(title: string, options?: Waiting): Promise<ConversationInfo>;
    /**
     * @param {import('./shapes.js').PutPreferences} preferences
     * @param {Waiting} [options]
     */
    setPreferences(preferences: PutPreferences, options?: Waiting): Promise<ConversationInfo>;
    /**
     * Who has read a message of one's own.
     * @param {number} seq
     * @param {Waiting} [options]
     */
    readers(seq: number, options?: Waiting): Promise<ReaderList>;
    /** @param {import('./shapes.js').ChatEvent} event */
    apply(event: ChatEvent): void;
    /** The stream has passed over something: whatever comes after it, the window is whole only up to here until it is caught up. */
    fallBehind(): void;
    /**
     * After the stream could not tell everything: what changed since is asked for, until it is known.
     * @param {AbortSignal} signal
     * @returns {Promise<void>}
     */
    catchUp(signal: AbortSignal): Promise<void>;
    /** Takes what the server just answered to a send. @param {Message} message */
    taken(message: Message): void;
    #private;
}
type Waiting = {
    signal?: AbortSignal;
};
type MessageEntry = {
    kind: "message";
    seq: number;
    message: Message;
};
type PendingEntry = {
    kind: "pending";
    clientId: string;
    draft: Draft;
    state: "waiting" | "sending" | "failed";
    error: {
        status: number;
        code: string;
        message: string;
    } | null;
    at: string;
};
type GapEntry = {
    kind: "gap";
    from: number;
    to: number;
    loading: boolean;
};
type Entry = MessageEntry | PendingEntry | GapEntry;
type Words = {
    body?: string;
    kind?: MessageKind;
    media?: string[];
    replyTo?: number;
    share?: ShareReference;
    mentions?: string[];
    peer?: string;
};
/**
 * @param {ConversationInfo} was
 * @param {import('./shapes.js').Message} message
 * @param {string | null} me
 * @returns {ConversationInfo}
 */
declare function withMessage(was: ConversationInfo, message: Message, me: string | null): ConversationInfo;
declare class ConversationList {
    /**
     * @param {object} options
     * @param {import('./contract.js').Api} options.api
     * @param {AbortSignal} options.signal
     * @param {() => string | null} options.me
     * @param {(id: string) => string[]} options.typing
     * @param {(id: string | null, before: ConversationInfo | null, after: ConversationInfo | null) => void} options.onChange
     */
    constructor({ api, signal, me, typing, onChange }: {
        api: Api;
        signal: AbortSignal;
        me: () => string | null;
        typing: (id: string) => string[];
        onChange: (id: string | null, before: ConversationInfo | null, after: ConversationInfo | null) => void;
    });
    loaded: boolean;
    api: Api;
    signal: AbortSignal;
    me: () => string | null;
    typing: (id: string) => string[];
    onChange: (id: string | null, before: ConversationInfo | null, after: ConversationInfo | null) => void;
    /** As it is to be shown. @returns {ListItem[]} */
    get items(): ListItem[];
    /** Whether there are pages not read yet. */
    get hasMore(): boolean;
    /** @param {string} id */
    known(id: string): ConversationInfo | undefined;
    /** The order or somebody's typing changed. */
    touch(): void;
    /** The stream has passed over something. What is known is replaced by what the server says from now on, however new it looks. */
    fallBehind(): void;
    /**
     * Reads again as many pages as were read.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {Promise<string>} the place in the log before which everything is in the list
     */
    refresh({ signal }?: {
        signal?: AbortSignal;
    }): Promise<string>;
    /**
     * Reads the next page.
     * @param {{ signal?: AbortSignal }} [options]
     */
    more({ signal }?: {
        signal?: AbortSignal;
    }): Promise<void>;
    /**
     * One conversation as it is now, on the list or not. Asked for once, however many ask.
     * @param {string} id
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {Promise<ConversationInfo>}
     */
    get(id: string, { signal }?: {
        signal?: AbortSignal;
    }): Promise<ConversationInfo>;
    /**
     * Those whose title, other member or members' names hold a text.
     * @param {string} text
     * @param {{ signal?: AbortSignal, cursor?: string }} [options]
     */
    search(text: string, { signal, cursor }?: {
        signal?: AbortSignal;
        cursor?: string;
    }): Promise<{
        items: ConversationInfo[];
        next_cursor: string | null;
    }>;
    /**
     * @param {ConversationInfo} one as the server has it
     * @param {{ listed?: boolean, asked?: number }} [how] `asked`: the moment in which the server was asked for it
     */
    put(one: ConversationInfo, { listed, asked }?: {
        listed?: boolean;
        asked?: number;
    }): void;
    /**
     * @param {string} id
     * @param {(one: ConversationInfo) => ConversationInfo} change
     */
    change(id: string, change: (one: ConversationInfo) => ConversationInfo): void;
    /** @param {string} id one does not belong to it any more */
    drop(id: string): void;
    /**
     * Asks for one until it is there; for what an event cannot tell.
     * @param {string} id
     */
    fetch(id: string): void;
    /** @param {import('./shapes.js').ChatEvent} event */
    apply(event: ChatEvent): void;
    /**
     * One has read up to somewhere.
     * @param {string} id
     * @param {import('./shapes.js').ReadPosition} position `unread` -1: not told
     * @param {number} [rev]
     */
    read(id: string, { read_seq, read_at, unread, unread_more }: ReadPosition, rev?: number): void;
    #private;
}
type ListItem = ConversationInfo & {
    typing: string[];
};
/**
 * The `sub` of a JWT, or null when it cannot be read. It is only used to name things; the gateway is who checks.
 * @param {string} token
 * @returns {string | null}
 */
declare function subjectOf(token: string): string | null;
/**
 * Milliseconds that `Retry-After` asks for; null when it is not there.
 * @param {Headers} headers
 */
declare function retryAfterMs(headers: Headers): number | null;
/**
 * The error that an answer tells.
 * @param {Response} response
 */
declare function errorOf(response: Response): Promise<SeqlineError>;
/** The token of now, asked for once however many need it. */
declare class TokenHolder {
    /**
     * @param {GetToken} getToken
     * @param {{ signal?: AbortSignal, withinMs?: number }} [options] `signal` ends everything
     */
    constructor(getToken: GetToken, { signal, withinMs }?: {
        signal?: AbortSignal;
        withinMs?: number;
    });
    /** @type {string | null} */
    token: string | null;
    getToken: GetToken;
    signal: AbortSignal | undefined;
    withinMs: number;
    /**
     * The token; a new one when the one of now is the one that was rejected.
     * @param {string | null} [rejected]
     * @param {AbortSignal} [signal] ends the waiting of this one caller
     * @returns {Promise<string>}
     */
    get(rejected?: string | null, signal?: AbortSignal): Promise<string>;
    #private;
}
declare class Requests {
    /**
     * @param {{ baseUrl: string, tokens: TokenHolder, signal: AbortSignal, locale?: string, fetch?: typeof fetch }} options `signal` ends everything
     */
    constructor({ baseUrl, tokens, signal, locale, fetch: doFetch }: {
        baseUrl: string;
        tokens: TokenHolder;
        signal: AbortSignal;
        locale?: string;
        fetch?: typeof fetch;
    });
    baseUrl: string;
    tokens: TokenHolder;
    signal: AbortSignal;
    locale: string | undefined;
    fetch: typeof fetch;
    /** Milliseconds that the last answers took, by method. @type {Record<string, number>} */
    latencies: Record<string, number>;
    /**
     * JSON in, JSON out; undefined for 204.
     * @param {string} method
     * @param {string} path
     * @param {import('./contract.js').CallArgs} [args]
     * @returns {Promise<any>}
     */
    request(method: string, path: string, { query, body, headers, signal, deadlineMs }?: CallArgs): Promise<any>;
    /**
     * @param {string} path
     * @param {Record<string, any>} [query] what is undefined or null is left out
     */
    url(path: string, query?: Record<string, any>): string;
    /**
     * A request with the token; with a new one, once, when that has expired. Any other answer is the caller's.
     * @param {string} url
     * @param {RequestInit} init
     */
    send(url: string, init: RequestInit): Promise<Response>;
    /**
     * Something that must end within a time; what it throws becomes a SeqlineError, but for the caller's own abort.
     * @template T
     * @param {number} deadlineMs
     * @param {AbortSignal | undefined} signal
     * @param {(ending: AbortSignal) => Promise<T>} work
     * @returns {Promise<T>}
     */
    within<T>(deadlineMs: number, signal: AbortSignal | undefined, work: (ending: AbortSignal) => Promise<T>): Promise<T>;
}
type GetToken = (asked: {
    rejected: string | null;
    signal?: AbortSignal;
}) => Promise<string> | string;
/** @typedef {{ id?: string, event: string, data: string, retry?: number, hasData: boolean }} SseBlock */
declare class SseParser {
    /**
     * The blocks that these bytes complete, in order. Those without data (a place, a `retry`) are given too.
     * @param {Uint8Array} bytes
     * @returns {SseBlock[]}
     */
    push(bytes: Uint8Array): SseBlock[];
    #private;
}
type SseBlock = {
    id?: string;
    event: string;
    data: string;
    retry?: number;
    hasData: boolean;
};
/**
 * @typedef {object} StreamRequest
 * @property {string | null} position
 * @property {string | null} device
 * @property {AbortSignal} signal
 * @property {(block: import('./sse_parser.js').SseBlock) => void} onBlock
 * @property {() => void} onLife something was heard
 */
/** @typedef {(request: StreamRequest) => Promise<void>} Transport resolves when the stream ends, rejects when it cannot be had */
/**
 * @param {import('./requests.js').Requests} requests
 * @returns {Transport}
 */
declare function fetchTransport(requests: Requests): Transport;
type StreamRequest = {
    position: string | null;
    device: string | null;
    signal: AbortSignal;
    onBlock: (block: SseBlock) => void;
    /**
     * something was heard
     */
    onLife: () => void;
};
/**
 * resolves when the stream ends, rejects when it cannot be had
 */
type Transport = (request: StreamRequest) => Promise<void>;
declare class EventStream {
    /**
     * @param {object} options
     * @param {import('./fetch_transport.js').Transport} options.transport
     * @param {import('./requests.js').TokenHolder} options.tokens
     * @param {() => Promise<string | null>} options.position where to open it; has its own retries
     * @param {() => Promise<void>} options.lost the place that was asked for cannot be read by the server
     * @param {string | null} options.device
     * @param {number} options.heartbeatMs
     * @param {(frame: Frame) => void} options.onFrame
     * @param {(state: StreamState) => void} options.onState
     * @param {() => number} [options.random]
     */
    constructor({ transport, tokens, position, lost, device, heartbeatMs, onFrame, onState, random }: {
        transport: Transport;
        tokens: TokenHolder;
        position: () => Promise<string | null>;
        lost: () => Promise<void>;
        device: string | null;
        heartbeatMs: number;
        onFrame: (frame: Frame) => void;
        onState: (state: StreamState) => void;
        random?: (() => number) | undefined;
    });
    transport: Transport;
    tokens: TokenHolder;
    position: () => Promise<string | null>;
    lost: () => Promise<void>;
    device: string | null;
    silenceMs: number;
    onFrame: (frame: Frame) => void;
    onState: (state: StreamState) => void;
    backoff: Backoff;
    farewells: Backoff;
    random: () => number;
    /** Milliseconds since something was last heard. */
    get silentFor(): number;
    /** Opens it afresh now, whatever it is doing. */
    reconnect(): void;
    /**
     * Goes on until the signal aborts; never gives up, never rejects.
     * @param {AbortSignal} signal
     */
    run(signal: AbortSignal): Promise<void>;
    #private;
}
type Phase = "connecting" | "live" | "recovering" | "waiting" | "signed-out" | "stopped";
type StreamState = {
    phase: Phase;
    attempt: number;
    retryAt: number | null;
    reason: string | null;
};
type Frame = {
    kind: "event";
    name: string;
    id: string | null;
    data: any;
} | {
    kind: "place";
    id: string;
};
/**
 * @param {import('./requests.js').Requests} requests
 * @param {import('./contract.js').Api} api
 * @param {{ Source?: typeof EventSource, silenceMs: number }} options `silenceMs`: after that much silence the log is asked
 * @returns {import('./fetch_transport.js').Transport}
 */
declare function eventSourceTransport(requests: Requests, api: Api, { Source, silenceMs }: {
    Source?: typeof EventSource;
    silenceMs: number;
}): Transport;
/**
 * @typedef {object} Happenings what is told under which name
 * @property {import('./connection.js').ChatState} state
 * @property {{ id: string | null }} conversations
 * @property {{ id: string }} timeline
 * @property {{ id: string, users: string[] }} typing
 * @property {{ unread: number, total: number, conversations: number }} badge
 * @property {{ id: string }} outbox
 * @property {unknown} error
 * @property {RawEvent} event
 */
/** @typedef {import('./shapes.js').ChatEvent | { type: 'resync', data: { reason: string } }} RawEvent */
declare class Listeners {
    /** @param {((error: unknown) => void) | undefined} [onError] hears of errors beside those who listen to them */
    constructor(onError?: ((error: unknown) => void) | undefined);
    closed: boolean;
    onError: ((error: unknown) => void) | undefined;
    /**
     * @template {keyof Happenings} K
     * @param {K} name
     * @param {(what: Happenings[K]) => void} callback
     * @returns {() => void} stops it
     */
    on<K extends keyof Happenings>(name: K, callback: (what: Happenings[K]) => void): () => void;
    /**
     * @template {keyof Happenings} K
     * @param {K} name
     * @param {Happenings[K]} what
     */
    tell<K extends keyof Happenings>(name: K, what: Happenings[K]): void;
    /**
     * Something went wrong.
     * @param {unknown} error
     */
    fault(error: unknown): void;
    /**
     * @template {keyof Happenings} K
     * @param {K} name
     * @param {string} key
     * @param {() => Happenings[K]} what read when it is told
     */
    tellSoon<K extends keyof Happenings>(name: K, key: string, what: () => Happenings[K]): void;
    /**
     * Events in order, from the call on.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {AsyncGenerator<RawEvent, void, void>}
     */
    events({ signal }?: {
        signal?: AbortSignal;
    }): AsyncGenerator<RawEvent, void, void>;
    close(): void;
    #private;
}
declare function closedError(): SeqlineError;
/**
 * what is told under which name
 */
type Happenings = {
    state: ChatState;
    conversations: {
        id: string | null;
    };
    timeline: {
        id: string;
    };
    typing: {
        id: string;
        users: string[];
    };
    badge: {
        unread: number;
        total: number;
        conversations: number;
    };
    outbox: {
        id: string;
    };
    error: unknown;
    event: RawEvent;
};
type RawEvent = ChatEvent | {
    type: "resync";
    data: {
        reason: string;
    };
};
declare class MediaStore {
    /** @param {import('./requests.js').Requests} requests */
    constructor(requests: Requests);
    requests: Requests;
    /**
     * @param {Blob} blob
     * @param {{ onProgress?: (share: number) => void, signal?: AbortSignal }} [options] `share` from 0 to 1
     * @returns {Promise<import('./shapes.js').Media>}
     */
    upload(blob: Blob, { onProgress, signal }?: {
        onProgress?: (share: number) => void;
        signal?: AbortSignal;
    }): Promise<Media>;
    /**
     * An object URL of a picture, good until the connection is closed or two hundred others were shown since.
     * @param {string} id
     * @returns {Promise<string>}
     */
    url(id: string): Promise<string>;
    close(): void;
    #private;
}
/**
 * @param {object} options
 * @param {Document | undefined} options.document
 * @param {EventTarget | undefined} options.window
 * @param {AbortSignal} options.signal
 * @param {() => void} options.onBack the network or the page is back: connect afresh
 * @param {() => void} options.onAside the page is put aside; it must hold nothing that others wait for
 * @param {() => void} options.onReturn it is taken up again
 */
declare function watchPage({ document, window, signal, onBack, onAside, onReturn }: {
    document: Document | undefined;
    window: EventTarget | undefined;
    signal: AbortSignal;
    onBack: () => void;
    onAside: () => void;
    onReturn: () => void;
}): void;
declare class Position {
    /**
     * @param {import('./store.js').Store} store
     * @param {string} key
     */
    constructor(store: Store, key: string);
    /** @type {string | null} */
    value: string | null;
    store: Store;
    key: string;
    /** Reads what was written down, unless a newer place is known. */
    load(): Promise<string | null>;
    /**
     * @param {string} id
     * @param {{ write: boolean }} how only the tab that has the stream writes
     */
    move(id: string, { write }: {
        write: boolean;
    }): void;
    forget(): Promise<void>;
    /** Writes at once what waits to be written. */
    flush(): Promise<void>;
    close(): Promise<void>;
    #private;
}
declare class Push {
    /**
     * @param {object} options
     * @param {import('./contract.js').Api} options.api
     * @param {import('./store.js').Store} options.store
     * @param {() => string | null} options.me
     * @param {string} [options.worker] path of the service worker
     */
    constructor({ api, store, me, worker }: {
        api: Api;
        store: Store;
        me: () => string | null;
        worker?: string | undefined;
    });
    /** @type {PushState} */
    state: PushState;
    /** Whether pushes say who wrote what. */
    preview: boolean;
    api: Api;
    store: Store;
    me: () => string | null;
    worker: string;
    get supported(): boolean;
    /**
     * To be called from a click: the browser asks the user for leave.
     * @param {{ preview?: boolean }} [options] whether pushes say who wrote what
     * @returns {Promise<PushState>}
     */
    enable({ preview }?: {
        preview?: boolean;
    }): Promise<PushState>;
    /** Tells the gateway again when pushes are wanted: the browser or the gateway may have changed what they have. */
    restore(): Promise<PushState>;
    disable(): Promise<PushState>;
    #private;
}
type PushState = "unsupported" | "denied" | "off" | "on";
declare class ReadMarks {
    /**
     * @param {object} options
     * @param {(conversationId: string, seq: number, signal: AbortSignal) => Promise<import('./shapes.js').ReadPosition>} options.send
     * @param {(conversationId: string, position: import('./shapes.js').ReadPosition) => void} options.onMoved
     * @param {() => boolean} options.visible whether somebody can see the page
     * @param {AbortSignal} options.signal
     */
    constructor({ send, onMoved, visible, signal }: {
        send: (conversationId: string, seq: number, signal: AbortSignal) => Promise<ReadPosition>;
        onMoved: (conversationId: string, position: ReadPosition) => void;
        visible: () => boolean;
        signal: AbortSignal;
    });
    send: (conversationId: string, seq: number, signal: AbortSignal) => Promise<ReadPosition>;
    onMoved: (conversationId: string, position: ReadPosition) => void;
    visible: () => boolean;
    signal: AbortSignal;
    /**
     * Read up to here elsewhere, or told by the server.
     * @param {string} conversationId
     * @param {number} seq
     */
    known(conversationId: string, seq: number): void;
    /**
     * Was in view. On a hidden page nothing is: it has to be said again when the page is seen.
     * @param {string} conversationId
     * @param {number} seq
     */
    seen(conversationId: string, seq: number): void;
    #private;
}
/**
 * Runs work that only one tab may do at a time; without locks, or where they may not be used, it simply runs.
 * @param {Locks | null | undefined} locks
 * @param {string} name
 * @param {AbortSignal} signal
 * @param {() => Promise<void>} work
 */
declare function alone(locks: Locks | null | undefined, name: string, signal: AbortSignal, work: () => Promise<void>): Promise<void>;
/** @typedef {{ request: (name: string, options: any, work: (lock: any) => Promise<any>) => Promise<any> }} Locks */
declare class Tabs {
    /**
     * @param {string} name the same in all tabs of one user
     * @param {{ locks?: Locks | null, Channel?: typeof BroadcastChannel | null, onMessage: (message: any) => void, onLead: (signal: AbortSignal) => Promise<void> | void, onFollow: () => void }} options
     */
    constructor(name: string, { locks, Channel, onMessage, onLead, onFollow }: {
        locks?: Locks | null;
        Channel?: typeof BroadcastChannel | null;
        onMessage: (message: any) => void;
        onLead: (signal: AbortSignal) => Promise<void> | void;
        onFollow: () => void;
    });
    leads: boolean;
    name: string;
    locks: Locks | null;
    onLead: (signal: AbortSignal) => Promise<void> | void;
    onFollow: () => void;
    /** Whether there can be others. */
    get shared(): boolean;
    /** @param {any} message what structured clones can hold */
    post(message: any): void;
    /**
     * Leads as soon as nobody else does.
     * @param {{ steal?: boolean }} [how] `steal`: at once, from one that has fallen silent
     */
    queue({ steal }?: {
        steal?: boolean;
    }): void;
    /** Gives the lead away, for instance because the page is put aside. */
    stepDown(): void;
    close(): void;
    #private;
}
type Locks = {
    request: (name: string, options: any, work: (lock: any) => Promise<any>) => Promise<any>;
};
/** Milliseconds. */
declare const SEND_EVERY_MS: 3000;
/** Milliseconds. */
declare const BELIEVE_MS: 6000;
declare class Typing {
    /**
     * @param {{ send: (conversationId: string, typing: boolean) => Promise<void>, onChange: (conversationId: string) => void }} options
     */
    constructor({ send, onChange }: {
        send: (conversationId: string, typing: boolean) => Promise<void>;
        onChange: (conversationId: string) => void;
    });
    send: (conversationId: string, typing: boolean) => Promise<void>;
    onChange: (conversationId: string) => void;
    /** @param {string} conversationId */
    users(conversationId: string): string[];
    /**
     * Oneself is writing, or has stopped. What is lost is not repeated: the next key does that.
     * @param {string} conversationId
     * @param {boolean} typing
     */
    tell(conversationId: string, typing: boolean): void;
    /**
     * One's own message ends it without a word; the next key tells it anew.
     * @param {string} conversationId
     */
    sent(conversationId: string): void;
    /**
     * @param {string} conversationId
     * @param {string} user
     * @param {boolean} typing
     */
    heard(conversationId: string, user: string, typing: boolean): void;
    close(): void;
    #private;
}
declare class Chat {
    /** @param {ConnectOptions} options */
    constructor(options: ConnectOptions);
    /** @type {string | null} */
    me: string | null;
    options: ConnectOptions;
    surroundings: Surroundings;
    heartbeatMs: number;
    tokens: TokenHolder;
    store: Store;
    requests: Requests;
    /** @type {import('./contract.js').Api} */
    api: Api;
    badgeCount: BadgeCount;
    conversations: ConversationList;
    /** @type {Parts} */
    parts: Parts;
    media: MediaStore;
    push: Push;
    /** @returns {ChatState} */
    get state(): ChatState;
    get badge(): Badge;
    /** What waits to be sent, in all conversations. */
    get outbox(): OutboxItem[];
    /**
     * @template {keyof import('./listeners.js').Happenings} K
     * @param {K} name
     * @param {(what: import('./listeners.js').Happenings[K]) => void} callback
     * @returns {() => void} stops it
     */
    on<K extends keyof Happenings>(name: K, callback: (what: Happenings[K]) => void): () => void;
    /**
     * The contract's events in order, without doubles, from now on.
     * @param {{ signal?: AbortSignal }} [options]
     */
    events(options?: {
        signal?: AbortSignal;
    }): AsyncGenerator<RawEvent, void, void>;
    /**
     * The same object for the same id.
     * @param {string} id
     * @param {{ peer?: string }} [options] the other one, when the conversation may not be made yet
     */
    conversation(id: string, { peer }?: {
        peer?: string;
    }): Conversation;
    /**
     * @param {import('./shapes.js').CreateConversation} body
     * @param {{ signal?: AbortSignal, key?: string }} [options] `key`: the same for every try to make the same group
     */
    createConversation(body: CreateConversation, { signal, key }?: {
        signal?: AbortSignal;
        key?: string;
    }): Promise<ConversationInfo>;
    /**
     * @param {Blob} blob
     * @param {{ onProgress?: (share: number) => void, signal?: AbortSignal }} [options]
     */
    upload(blob: Blob, options?: {
        onProgress?: (share: number) => void;
        signal?: AbortSignal;
    }): Promise<Media>;
    /** @param {string} id of a picture */
    mediaUrl(id: string): Promise<string>;
    /** Opens the stream afresh from its place, and tries at once what waits to be tried. */
    reconnect(): void;
    /** Ends everything; leaves no timer and no socket. What waits to be sent stays in the store: it is there when this resolves. */
    close(): Promise<void>;
    #private;
}
/**
 * what a browser has, and tests have otherwise
 */
type Surroundings = {
    locks?: Locks | null | undefined;
    Channel?: {
        new (name: string): BroadcastChannel;
        prototype: BroadcastChannel;
    } | null | undefined;
    document?: Document | undefined;
    window?: EventTarget | undefined;
    EventSource?: {
        new (url: string | URL, eventSourceInitDict?: EventSourceInit): EventSource;
        prototype: EventSource;
        readonly CONNECTING: 0;
        readonly OPEN: 1;
        readonly CLOSED: 2;
    } | undefined;
    fetch?: typeof fetch | undefined;
    random?: (() => number) | undefined;
};
type ConnectOptions = {
    /**
     * where the gateways are; the page's origin when absent
     */
    baseUrl?: string | undefined;
    /**
     * gives a token; a new one when `rejected` is the one it gave before
     */
    getToken: GetToken;
    /**
     * name of this device; made and kept in the store when absent
     */
    device?: string | undefined;
    storage?: Store | undefined;
    transport?: "fetch" | "eventsource" | undefined;
    /**
     * as the gateways have it; three of them without a byte and the stream is opened afresh
     */
    heartbeatMs?: number | undefined;
    locale?: string | undefined;
    /**
     * path of the service worker that shows pushes
     */
    worker?: string | undefined;
    onError?: ((error: unknown) => void) | undefined;
    surroundings?: Surroundings | undefined;
};
type ChatState = StreamState & {
    leader: boolean;
    position: string | null;
    lastEventAt: number | null;
    latencies: Record<string, number>;
};
/**
 * what a conversation works with
 */
type Parts = {
    api: Api;
    list: ConversationList;
    outbox: Outbox;
    typing: Typing;
    reads: ReadMarks;
    me: () => string | null;
    /**
     * the other one, of single conversations that may not be made yet
     */
    peers: Map<string, string>;
    signal: AbortSignal;
    onTimeline: (id: string) => void;
    onError: (error: unknown) => void;
};
/** @typedef {import('./client/connection.js').ConnectOptions} ConnectOptions */
/** @typedef {import('./client/connection.js').ChatState} ChatState */
/** @typedef {import('./client/conversation.js').Entry} Entry */
/** @typedef {import('./client/conversation.js').Words} Words */
/** @typedef {import('./client/conversation_list.js').ListItem} ListItem */
/** @typedef {import('./client/shapes.js').ConversationInfo} ConversationInfo */
/** @typedef {import('./client/shapes.js').ChatEvent} ChatEvent */
/** @typedef {import('./client/shapes.js').Member} Member */
/** @typedef {import('./client/shapes.js').Media} Media */
/** @typedef {import('./client/shapes.js').Message} Message */
/** @typedef {import('./client/store.js').Store} Store */
/**
 * Begins at once; what goes wrong is tried again until `close`.
 * @param {ConnectOptions} options
 * @returns {Chat}
 */
declare function connect(options: ConnectOptions): Chat;
export { Chat, Conversation, ConversationList, SeqlineError, connect, indexedDbStore, memoryStore, uuidv7 };
export type { ChatEvent, ChatState, ConnectOptions, ConversationInfo, Entry, ListItem, Media, Member, Message, Store, Words };
