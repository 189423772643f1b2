// The contract in one place: every route, event name and error code, typed. A test holds it against /openapi.json of a running gateway.
/** @import * as S from './shapes.js' */

/** Every route: method and path. */
export const ROUTES = /** @type {const} */ ({
    createConversation: ['POST', '/v1/conversations'],
    getConversations: ['GET', '/v1/conversations'],
    getConversation: ['GET', '/v1/conversations/{id}'],
    patchConversation: ['PATCH', '/v1/conversations/{id}'],
    getMembers: ['GET', '/v1/conversations/{id}/members'],
    putMember: ['PUT', '/v1/conversations/{id}/members/{user_id}'],
    deleteMember: ['DELETE', '/v1/conversations/{id}/members/{user_id}'],
    putPreferences: ['PUT', '/v1/conversations/{id}/preferences'],
    getUnread: ['GET', '/v1/unread'],
    putBlock: ['PUT', '/v1/blocks/{user_id}'],
    deleteBlock: ['DELETE', '/v1/blocks/{user_id}'],
    getBlocks: ['GET', '/v1/blocks'],
    getSearch: ['GET', '/v1/search'],
    send: ['POST', '/v1/conversations/{id}/messages'],
    getMessages: ['GET', '/v1/conversations/{id}/messages'],
    getMessage: ['GET', '/v1/conversations/{id}/messages/{seq}'],
    patchMessage: ['PATCH', '/v1/conversations/{id}/messages/{seq}'],
    deleteMessage: ['DELETE', '/v1/conversations/{id}/messages/{seq}'],
    putReaction: ['PUT', '/v1/conversations/{id}/messages/{seq}/reactions/{emoji}'],
    deleteReaction: ['DELETE', '/v1/conversations/{id}/messages/{seq}/reactions/{emoji}'],
    getReaders: ['GET', '/v1/conversations/{id}/messages/{seq}/readers'],
    getByClientId: ['GET', '/v1/conversations/{id}/messages/by-client-id/{client_id}'],
    postRead: ['POST', '/v1/conversations/{id}/read'],
    postTyping: ['POST', '/v1/conversations/{id}/typing'],
    getAudit: ['GET', '/v1/audit/conversations/{id}'],
    getVersions: ['GET', '/v1/audit/conversations/{id}/messages/{seq}/versions'],
    getEvents: ['GET', '/v1/events'],
    pollEvents: ['GET', '/v1/events/poll'],
    ackEvents: ['POST', '/v1/events/ack'],
    makeTicket: ['POST', '/v1/events/ticket'],
    postMedia: ['POST', '/v1/media'],
    getMedia: ['GET', '/v1/media/{id}'],
    getPushKey: ['GET', '/v1/push/key'],
    putPushSubscription: ['PUT', '/v1/push/subscriptions'],
    deletePushSubscription: ['DELETE', '/v1/push/subscriptions'],
    putUser: ['PUT', '/v1/users/{user_id}'],
    getUser: ['GET', '/v1/users/{user_id}'],
    deleteUser: ['DELETE', '/v1/users/{user_id}'],
    postImport: ['POST', '/v1/import'],
    getExport: ['GET', '/v1/export/conversations/{id}'],
    putShare: ['PUT', '/v1/shared/{type}/{id}'],
    deleteShare: ['DELETE', '/v1/shared/{type}/{id}'],
    getOpenapi: ['GET', '/openapi.json'],
});

/** Kept in the log, with an id. */
export const LOGGED_EVENTS = /** @type {const} */ ([
    'conversation.created', 'conversation.imported', 'conversation.renamed', 'conversation.dissolved',
    'member.joined', 'member.left', 'member.removed', 'owner.changed',
    'message.created', 'message.edited', 'message.deleted', 'message.resequenced',
    'reaction.changed', 'read.advanced', 'preferences.changed',
]);

/** About conversations, but live only. */
export const LIVE_EVENTS = /** @type {const} */ (['typing.updated']);

/** What a stream says about itself. */
export const STREAM_EVENTS = /** @type {const} */ (['hello', 'resync', 'unavailable', 'token_expired', 'goodbye']);

/** Error codes and the status that each is answered with. */
export const ERROR_CODES = /** @type {const} */ ({
    malformed_json: 400, invalid_cursor: 400, invalid_parameter: 400,
    unauthenticated: 401, token_expired: 401,
    forbidden: 403, read_only: 403,
    not_found: 404, method_not_allowed: 405, not_acceptable: 406,
    idempotency_conflict: 409, deleted: 409,
    dissolved: 410, too_large: 413, unsupported_media_type: 415,
    invalid_field: 422, unknown_field: 422,
    rate_limited: 429, unavailable: 503, overloaded: 503,
});

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
export function fillPath(template, path = {}) {
    return template.replace(/\{(\w+)\}/g, (_, name) => {
        if (!(name in path)) throw new TypeError(`the path ${template} needs ${name}`);
        return encodeURIComponent(String(path[name]));
    });
}

/**
 * The contract bound to something that makes requests.
 * @param {(method: string, path: string, args: CallArgs) => Promise<any>} request
 * @returns {Api}
 */
export function bindApi(request) {
    const entries = Object.entries(ROUTES).map(([name, [method, template]]) => {
        const call = (/** @type {CallArgs} */ args = {}) => request(method, fillPath(template, args.path), args);
        return [name, call];
    });
    return Object.fromEntries(entries);
}
