/*M!999999\- enable the sandbox mode */ 

/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!40101 SET @OLD_CHARACTER_SET_RESULTS=@@CHARACTER_SET_RESULTS */;
/*!40101 SET @OLD_COLLATION_CONNECTION=@@COLLATION_CONNECTION */;
/*!40101 SET NAMES utf8mb4 */;
/*!40103 SET @OLD_TIME_ZONE=@@TIME_ZONE */;
/*!40103 SET TIME_ZONE='+00:00' */;
/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */;
/*!40014 SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0 */;
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;
/*!40111 SET @OLD_SQL_NOTES=@@SQL_NOTES, SQL_NOTES=0 */;
DROP TABLE IF EXISTS `headrace_format`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `headrace_format` (
  `part` varchar(6) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL,
  `written_as` int(1) NOT NULL,
  `readable_from` int(1) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `headrace_format` DISABLE KEYS */;
INSERT INTO `headrace_format` VALUES ('outbox',1,1);
/*!40000 ALTER TABLE `headrace_format` ENABLE KEYS */;
DROP TABLE IF EXISTS `headrace_outbox`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `headrace_outbox` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `change_feed_id` varchar(200) NOT NULL,
  `op` varchar(10) NOT NULL,
  `key` longtext DEFAULT NULL,
  `changes` longtext NOT NULL,
  `changed` longtext DEFAULT NULL,
  `created_at` timestamp(3) NOT NULL DEFAULT current_timestamp(3),
  `agent_id` varchar(200) NOT NULL DEFAULT '',
  `sequence_id` bigint(20) DEFAULT NULL,
  `history` int(11) NOT NULL DEFAULT 0,
  `tx` bigint(20) DEFAULT NULL,
  `tx_index` bigint(20) DEFAULT NULL,
  `processed` tinyint(4) NOT NULL DEFAULT 0,
  `processed_at` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `headrace_outbox_place` (`change_feed_id`,`sequence_id`,`id`)
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `headrace_outbox` DISABLE KEYS */;
INSERT INTO `headrace_outbox` VALUES (1,'bank','put','order-1','{\"uuid\":\"order-1\"}',NULL,'2026-11-22 07:17:50.815','agent-1',1,0,2,0,1,1760000000000);
INSERT INTO `headrace_outbox` VALUES (2,'bank','put','order-2','{\"uuid\":\"order-2\"}',NULL,'2026-11-22 07:17:50.815','agent-1',2,0,2,1,1,1760000001000);
INSERT INTO `headrace_outbox` VALUES (3,'bank','patch',NULL,'{\"uuid\": \"ö-3\", \"n\": 1.0}','[\"n\"]','2026-11-22 07:17:50.880','agent-1',3,0,4,0,0,NULL);
INSERT INTO `headrace_outbox` VALUES (4,'bank','delete','order-4','{\"uuid\":\"order-4\"}',NULL,'2026-11-22 07:17:50.881','agent-1',4,0,4,1,0,NULL);
INSERT INTO `headrace_outbox` VALUES (5,'bank','put','order-5','{\"uuid\":\"order-5\"}',NULL,'2026-11-22 07:17:50.910','',NULL,0,NULL,NULL,0,NULL);
INSERT INTO `headrace_outbox` VALUES (6,'bank','put','order-6','{\"uuid\":\"order-6\"}',NULL,'2026-11-22 07:17:50.936','',NULL,0,NULL,NULL,0,NULL);
/*!40000 ALTER TABLE `headrace_outbox` ENABLE KEYS */;
DROP TABLE IF EXISTS `headrace_owner`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `headrace_owner` (
  `feed` varchar(200) NOT NULL,
  `agent_id` varchar(200) NOT NULL DEFAULT '',
  `epoch` bigint(20) NOT NULL DEFAULT 0,
  `incarnation` varchar(64) DEFAULT NULL,
  `next_sequence_id` bigint(20) NOT NULL DEFAULT 0,
  `processed_next` bigint(20) NOT NULL DEFAULT 0,
  `kept_from` bigint(20) NOT NULL DEFAULT 0,
  `history` int(11) NOT NULL DEFAULT 0,
  `alarm` longtext DEFAULT NULL,
  `accepted` longtext DEFAULT NULL,
  PRIMARY KEY (`feed`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `headrace_owner` DISABLE KEYS */;
INSERT INTO `headrace_owner` VALUES ('bank','agent-1',2,'inc',5,3,1,0,NULL,NULL);
/*!40000 ALTER TABLE `headrace_owner` ENABLE KEYS */;
DROP TABLE IF EXISTS `headrace_parked`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `headrace_parked` (
  `id` bigint(20) NOT NULL,
  `feed` varchar(200) NOT NULL,
  `sequence_id` bigint(20) NOT NULL,
  `op` varchar(10) NOT NULL,
  `key` longtext DEFAULT NULL,
  `changes` longtext NOT NULL,
  `changed` longtext DEFAULT NULL,
  `code` varchar(64) NOT NULL,
  `reason` text NOT NULL,
  `parked_at` timestamp(3) NOT NULL DEFAULT current_timestamp(3),
  `later_id` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `headrace_parked` DISABLE KEYS */;
INSERT INTO `headrace_parked` VALUES (2,'bank',2,'put','order-2','{\"uuid\":\"order-2\"}',NULL,'too-large','it holds a picture','2026-11-22 07:17:50.823',NULL);
/*!40000 ALTER TABLE `headrace_parked` ENABLE KEYS */;
/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;

/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;
/*!40014 SET FOREIGN_KEY_CHECKS=@OLD_FOREIGN_KEY_CHECKS */;
/*!40014 SET UNIQUE_CHECKS=@OLD_UNIQUE_CHECKS */;
/*!40101 SET CHARACTER_SET_CLIENT=@OLD_CHARACTER_SET_CLIENT */;
/*!40101 SET CHARACTER_SET_RESULTS=@OLD_CHARACTER_SET_RESULTS */;
/*!40101 SET COLLATION_CONNECTION=@OLD_COLLATION_CONNECTION */;
/*!40111 SET SQL_NOTES=@OLD_SQL_NOTES */;

