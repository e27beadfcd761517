--! # What `plait run` reads, and where results go; in a file of its own it would be peaks.toml.
--! [workload]
--! name = "energy"
--! readings_per_second = 50
--! alarms_per_second = 5
--! meters = 20
--! seconds = 60
--! seed = 2

-- The meters that drew most in each window of 10 s, with the alarms that they raised in the 20 s after it.
WITH
    drawn AS (
        SELECT window.end AS closed, meter, max(cons) AS peak
        FROM readings
        GROUP BY window(ts, '10 seconds'), meter
        HAVING count(*) > 5
    ),
    highest AS (SELECT closed, max(peak) AS peak FROM drawn GROUP BY closed),
    leaders AS (
        SELECT drawn.meter, drawn.peak, drawn.closed
        FROM drawn JOIN highest ON drawn.closed = highest.closed AND drawn.peak = highest.peak
    )
SELECT leaders.meter, leaders.peak, leaders.closed, alarms.ts AS raised
FROM leaders
LEFT JOIN alarms
    ON alarms.meter = leaders.meter AND alarms.ts - leaders.closed BETWEEN INTERVAL '0' SECOND AND INTERVAL '20' SECOND
