import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.regex.*;

/**
 * A lock written by hand on one Redis server, without any library: SET NX PX, and scripts that compare the value before
 * they renew or delete. It is also the template to copy: replace {@code open}, {@code acquire}, {@code renew} and
 * {@code release}. The rest is lockcheck's client protocol, see docs/client-protocol.md.
 */
public class RedisLock {
    /** What certainly did not happen. All other exceptions mean that nobody knows. */
    static class Never extends Exception {
        Never(String why) { super(why); }
    }

    static final String CAPABILITIES = "[\"wait\",\"lease\",\"renew\"]";
    static final String IF_MINE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call(%s) else return 0 end";

    static Socket redis;
    static long ttl;
    static final Map<String, String> held = new HashMap<>();

    static void open(String url, long ttlMillis) throws IOException {
        URI u = URI.create(url);
        redis = new Socket(u.getHost(), u.getPort());
        redis.setSoTimeout(5000);
        redis.setTcpNoDelay(true);
        ttl = ttlMillis;
        redis("PING");
    }

    static String acquire(String key, long wait) throws Exception {
        String value = UUID.randomUUID().toString();
        for (long end = System.nanoTime() + wait * 1_000_000; ; Thread.sleep(10)) {
            if ("OK".equals(redis("SET", key, value, "NX", "PX", "" + ttl))) break;
            if (System.nanoTime() >= end) throw new Never("lock is held by another");
        }
        held.put(key, value);
        return "\"lease_ms\":" + ttl;
    }

    static String renew(String key) throws Exception {
        ifMine(key, held.get(key), "'pexpire',KEYS[1]," + ttl);
        return "\"lease_ms\":" + ttl;
    }

    static void release(String key) throws Exception {
        ifMine(key, held.remove(key), "'del',KEYS[1]");
    }

    static void ifMine(String key, String value, String command) throws Exception {
        if (value == null || !"1".equals(redis("EVAL", String.format(IF_MINE, command), "1", key, value)))
            throw new Never("lock is not held");
    }

    /** Sends a command and returns the answer; null is nil. A broken connection is of no use any more. */
    static String redis(String... command) throws IOException {
        var out = new ByteArrayOutputStream();
        out.write(("*" + command.length + "\r\n").getBytes());
        for (String word : command) {
            byte[] b = word.getBytes(StandardCharsets.UTF_8);
            out.write(("$" + b.length + "\r\n").getBytes());
            out.write(b);
            out.write("\r\n".getBytes());
        }
        redis.getOutputStream().write(out.toByteArray());
        String head = line(redis.getInputStream());
        switch (head.charAt(0)) {
            case '-': throw new IOException(head);
            case '$': return head.equals("$-1") ? null : line(redis.getInputStream());
            default: return head.substring(1);
        }
    }

    static String line(InputStream in) throws IOException {
        var b = new ByteArrayOutputStream();
        for (int c; (c = in.read()) != '\n'; b.write(c)) if (c < 0) throw new EOFException();
        return b.toString(StandardCharsets.UTF_8).stripTrailing();
    }

    // From here on it is the protocol, for any lock.

    static final HttpClient web = HttpClient.newBuilder().proxy(HttpClient.Builder.NO_PROXY).version(HttpClient.Version.HTTP_1_1).build();

    public static void main(String[] args) throws IOException {
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err); // a print by mistake must not be taken for an answer
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String q; (q = in.readLine()) != null; ) {
            String f = text(q, "f"), answer;
            try {
                String more = serve(f, q);
                answer = "\"type\":\"ok\"" + (more.isEmpty() ? "" : "," + more);
            } catch (Never | ConnectException e) {
                answer = "\"type\":\"fail\",\"error\":" + quote("" + e.getMessage());
            } catch (Exception e) {
                answer = "\"type\":\"info\",\"error\":" + quote("" + e);
            }
            out.println("{\"id\":" + number(q, "id") + "," + answer + "}");
            if (f.equals("close")) System.exit(0);
        }
    }

    static String serve(String f, String q) throws Exception {
        String key = text(q, "key"), url = text(q, "url");
        switch (f) {
            case "open":
                open(url, number(q, "ttl_ms")); // the first url is that of the first server
                return "\"protocol\":1,\"name\":\"java-redis\",\"version\":\"1\",\"capabilities\":" + CAPABILITIES;
            case "acquire": return acquire(key, number(q, "wait_ms"));
            case "renew": return renew(key);
            case "release": release(key); return "";
            case "write": ask("POST", url); return "";
            case "read": return "\"value\":" + quote(ask("GET", url));
            case "close": return "";
            default: throw new Never("cannot " + f);
        }
    }

    static String ask(String method, String url) throws Exception {
        var r = web.send(HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(5))
            .method(method, HttpRequest.BodyPublishers.noBody()).build(), HttpResponse.BodyHandlers.ofString());
        if (r.statusCode() == 409) throw new Never(r.body());
        if (r.statusCode() != 200) throw new IOException("status " + r.statusCode() + ": " + r.body());
        return r.body();
    }

    // Java has no JSON of its own. Names of fields are enough to find them: in a string their quotes would be escaped.

    static String text(String json, String name) {
        Matcher m = Pattern.compile("\"" + name + "\":\"((?:[^\"\\\\]|\\\\.)*)\"").matcher(json);
        if (!m.find()) return "";
        return Pattern.compile("\\\\(u(....)|.)").matcher(m.group(1)).replaceAll(e -> Matcher.quoteReplacement(
            e.group(2) != null ? "" + (char) Integer.parseInt(e.group(2), 16)
                : switch (e.group(1)) { case "n" -> "\n"; case "t" -> "\t"; case "r" -> "\r"; default -> e.group(1); }));
    }

    static long number(String json, String name) {
        Matcher m = Pattern.compile("\"" + name + "\":(-?\\d+)").matcher(json);
        return m.find() ? Long.parseLong(m.group(1)) : 0;
    }

    static String quote(String s) {
        var b = new StringBuilder("\"");
        for (char c : s.toCharArray())
            b.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' ? String.format("\\u%04x", (int) c) : "" + c);
        return b.append('"').toString();
    }
}
